"""Spark: its session, its errors in our words, and its Kafka source."""
