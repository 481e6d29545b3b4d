"""How tests are given to several processes (`--numprocesses`): files whole, and again what a process that died left."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

_NEEDED = 2  # a worker begins a test when it has the next one, or knows that there is none


class InWholeFiles(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
    """The tests of a file stay together, since they build on each other; so do those of the folders `in_one`."""

    def __init__(self, config: pytest.Config, log: Producer, in_one: Sequence[str] = ()) -> None:
        super().__init__(config, log)
        self._in_one = in_one

    def _split_scope(self, nodeid: str) -> str:
        folder = next((folder for folder in self._in_one if nodeid.startswith(folder)), None)
        return folder or nodeid.partition("::")[0]

    def remove_node(self, node: WorkerController) -> str | None:
        """Take a process out that has ended: what it died of is returned, what it had not begun comes next."""
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
        """Give the process files until it can begin.

        xdist (3.8) gives it one, also one of a single test: then the process waits for ever, and so does the session.
        `schedule` asks again for a process that still looks which tests there are.
        """
        if node not in self.registered_collections:
            return
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < _NEEDED:
            super()._reschedule(node)
