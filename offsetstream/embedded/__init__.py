"""Java, Maven artifacts and a real Kafka broker, for the demo, the tests and commands that need Java."""
