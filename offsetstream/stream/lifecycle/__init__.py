"""One run of the job: its attempts, its queries, its lease, and how they end."""
