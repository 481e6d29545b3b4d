"""Gives tests to several processes (`--numprocesses`): whole files, and again those that a dead process left."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

_NEEDED = 2  # a worker starts a test when it has the next one, or knows that there is none


class InWholeFiles(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
    """Keeps the tests of a file in one process, since they build on each other; so too for each folder of `in_one`."""

    def __init__(self, config: pytest.Config, log: Producer, in_one: Sequence[str] = ()) -> None:
        super().__init__(config, log)
        self._in_one = in_one

    def _split_scope(self, nodeid: str) -> str:
        folder = next((folder for folder in self._in_one if nodeid.startswith(folder)), None)
        return folder or nodeid.partition("::")[0]

    def remove_node(self, node: WorkerController) -> str | None:
        """Remove a process that has ended. Return the test that crashed it; its remaining tests come next."""
        left = {scope: tests for scope, tests in self.assigned_work.pop(node).items() if not all(tests.values())}
        crashed = next((test for tests in left.values() for test, is_done in tests.items() if not is_done), None)
        if crashed is not None:
            left[self._split_scope(crashed)][crashed] = True
            for scope in reversed(left):
                self.workqueue[scope] = left[scope]
                self.workqueue.move_to_end(scope, last=False)
            for other in self.assigned_work:
                self._reschedule(other)
        return crashed

    def _reschedule(self, node: WorkerController) -> None:
        """Give the process files until it can start.

        xdist (3.8) gives it one file. If that has a single test, the process would wait for ever, and so the session.
        A process that still collects tests gets its files from `schedule`.
        """
        if node not in self.registered_collections:
            return
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < _NEEDED:
            super()._reschedule(node)
