"""Samples of end offsets, taken in a thread of the job (docs/development/design.md, "End offsets")."""
