"""Kafka's consumer-group state, replayed from __consumer_offsets into Delta tables."""
