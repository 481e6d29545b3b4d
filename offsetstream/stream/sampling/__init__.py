"""Where the logs end that groups read, sampled in a thread of the job (docs/development/design.md, "End offsets")."""
