"""Benchmarks of offsetstream; most compare it with a peer in the same run (`make bench`)."""
