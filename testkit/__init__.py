"""Shared by tests and benchmarks, which do not import each other: tables, brokers, processes, records, waiting."""
