"""The store of positions: how far each offsets partition is applied, and what is to be loaded."""
