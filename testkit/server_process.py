"""Servers that a test starts: awaited until they answer, and ended with the test, however that ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from offsetstream.embedded.guarded import GuardedProcesses
from testkit.waiting import await_


class ServerProcess:
    """Processes in a folder that goes with them; all of them end with `with`, or with the process that started them."""

    def __init__(self) -> None:
        self._processes = GuardedProcesses()
        self.folder = self._processes.folder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._processes.close()

    def start(self, name: str, command: Sequence[str], answers: Callable[[], bool]) -> int:
        """Start a server and wait until it answers; its pid. AssertionError with what it printed if it ends before."""
        pid = self._processes.start(name, command, self._log(name))

        def ready() -> bool:
            assert self._processes.exit_code(name) is None, self.said(name)
            return answers()

        await_(ready, lambda: self.said(name))
        return pid

    def end(self, name: str, grace_seconds: float = 0.0) -> None:
        self._processes.end([name], grace_seconds)

    def said(self, name: str) -> str:
        return self._log(name).read_text(errors="replace")

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"
