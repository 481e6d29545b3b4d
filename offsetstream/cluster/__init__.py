"""What is asked of the live cluster, through confluent-kafka."""
