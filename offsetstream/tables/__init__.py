"""The Delta tables: their schemas as data, and the few ways in which they are written and read."""
