"""A workload of real clients whose groups are worth looking at: for `offsetstream demo` and for tests."""

from offsetstream.demo.workload import Workload, run_workload

__all__ = ["Workload", "run_workload"]
