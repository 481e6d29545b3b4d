"""Answers in SQL: views over the tables, one file each, for Spark as they stand and for DuckDB by translation."""
