"""Where the logs end that groups read, sampled in a thread of the job (docs/design.md, "End offsets")."""
