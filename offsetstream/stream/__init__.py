"""The streaming job: read the offsets topic, load partitions, apply micro-batches, and the loop around them."""
