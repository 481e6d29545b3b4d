"""The resident memory of a process and all its descendants, as Linux tells it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_EVERY_SECONDS = 0.2
_ALIKE = 0.01
_SIZES = ("VmSize", "VmRSS")


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
            self.peak_bytes = max(self.peak_bytes, _tree_bytes(self._pid))


def _tree_bytes(pid: int, size_of_parent: int = 0) -> int:
    """Add up a tree; a child of its parent's size has no memory of its own yet: it is between fork and exec."""
    size, resident = _memory(pid)
    own = 0 if abs(size - size_of_parent) < _ALIKE * size else resident  # the parent may grow between two looks
    return own + sum(_tree_bytes(child, size) for child in _children(pid))


def _children(pid: int) -> Iterator[int]:
    for task in _PROC.glob(f"{pid}/task/*/children"):
        try:
            yield from map(int, task.read_text().split())
        except OSError:  # it ended meanwhile
            continue


def _memory(pid: int) -> tuple[int, int]:
    """Return the address space and the resident memory of a process, in bytes."""
    try:
        lines = (_PROC / str(pid) / "status").read_text().splitlines()
    except OSError:
        return 0, 0
    sizes = {
        name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines) if name in _SIZES
    }
    return sizes.get(_SIZES[0], 0), sizes.get(_SIZES[1], 0)
