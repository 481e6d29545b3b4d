"""Spark: its session and settings, its Kafka source, and error messages for its failures."""
