"""The two engines that write the state tables: Spark, and the driver for small batches."""
