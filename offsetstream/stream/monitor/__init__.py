"""What the job asks of the cluster while it runs: ends, leaders, topics, and whether a log is still the same."""
