"""What is read is written: a batch, a load, and the history of both."""
