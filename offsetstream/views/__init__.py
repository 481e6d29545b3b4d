"""Answers in SQL: views over the tables, one file each, which Spark and DuckDB share."""
