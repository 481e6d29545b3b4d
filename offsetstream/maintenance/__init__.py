"""Keep the tables small: the command `maintain`, and the job's upkeep between batches."""
