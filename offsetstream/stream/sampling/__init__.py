"""Samples of end offsets, taken in a thread of the job (docs/decisions/03-end-offsets.md)."""
