"""Samples of the end offsets of the topics that groups read, taken in a thread of the job (docs/development/design.md, "End offsets")."""
