"""Metrics for Prometheus, and whether the job is well: over HTTP, from a thread of the running job."""
