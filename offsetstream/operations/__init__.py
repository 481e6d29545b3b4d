"""What an operator does to the offsets of a live cluster: planned, objected to, kept in a snapshot, done, undone."""
