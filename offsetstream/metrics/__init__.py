"""Metrics for Prometheus and health checks over HTTP, served by a thread of the running job."""
