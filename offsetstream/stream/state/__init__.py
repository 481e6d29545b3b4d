"""The state tables' two engines: Spark, and the driver for what it can hold."""
