"""What tests and benchmarks share, since they do not import each other: tables, brokers, processes, records, waits."""
