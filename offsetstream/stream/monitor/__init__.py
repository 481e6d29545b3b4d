"""What the job queries from the cluster while it runs: end offsets, leaders, topics, and whether a log was replaced."""
