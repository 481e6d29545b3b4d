"""Benchmarks: what offsetstream costs, each next to a peer in the same run (`make bench`)."""
