"""The Delta tables: their schemas as data, and all code that reads and writes them."""
