"""What keeps the tables small: the command, and what the job does between two batches."""
