"""What tests and benchmarks share, neither of which imports the other: tables, brokers, processes, records, waiting."""
