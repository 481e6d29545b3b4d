"""What the records of __consumer_offsets mean: partitions, groups, members. No Spark, no I/O."""
