"""Measurements, each a command: what offsetstream costs, beside a peer in the same run."""
