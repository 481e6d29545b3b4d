"""The job: read the topic, load partitions, apply micro-batches, and the loop around them."""
