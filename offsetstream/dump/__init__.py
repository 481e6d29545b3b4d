"""The records of a topic, or of log segments, as text."""
