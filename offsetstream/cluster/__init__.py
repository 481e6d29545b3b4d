"""Query and change the live cluster, with confluent-kafka and, where needed, Kafka's Java client."""
