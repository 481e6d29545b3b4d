"""The resident memory of a process and all its descendants, as Linux tells it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_EVERY_SECONDS = 0.2


class PeakMemory:
    """Looks at a process tree several times a second; pages that processes share are counted in each of them."""

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            self.peak_bytes = max(self.peak_bytes, sum(map(_resident_bytes, _tree(self._pid))))


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for task in _PROC.glob(f"{pid}/task/*/children"):
        try:
            children = task.read_text().split()
        except OSError:  # it ended meanwhile
            continue
        for child in children:
            yield from _tree(int(child))


def _resident_bytes(pid: int) -> int:
    try:
        lines = (_PROC / str(pid) / "status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))
