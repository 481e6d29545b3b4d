"""Real clients of a shop: healthy groups of every kind, and five troubles. For `offsetstream demo` and for tests."""

from offsetstream.demo.workload import Workload, run_workload

__all__ = ["Workload", "run_workload"]
