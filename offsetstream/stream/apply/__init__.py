"""Write what was read: batches, loads, and the history of both."""
