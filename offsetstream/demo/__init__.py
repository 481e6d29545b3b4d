"""Real clients of a web shop, for `offsetstream demo` and tests: healthy groups of every kind, and five troubles."""

from offsetstream.demo.workload import Workload, run_workload

__all__ = ["Workload", "run_workload"]
