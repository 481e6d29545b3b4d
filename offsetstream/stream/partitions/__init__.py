"""The positions of the job: how far each offsets partition is applied, and which must be loaded."""
