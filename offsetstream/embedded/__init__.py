"""What offsetstream brings along for demo and tests: Java's checks, Maven artifacts, a real Kafka broker."""
