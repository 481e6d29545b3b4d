"""Compare the tables with the live cluster, the records, the ledger and the topic."""
