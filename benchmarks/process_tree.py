"""The resident memory of a process and all its descendants, as Linux reports it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_EVERY_SECONDS = 0.2
_ALIKE = 0.01
_SIZES = ("VmSize", "VmRSS")


class PeakMemory:
    """Looks at a process tree several times a second; pages that processes share are counted in each of them.

    `peak_bytes` is the most of all together; `peaks` of the process itself (`driver`), of the JVMs below it
    (`java`) and of all others (`workers`), each at its own time.
    """

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self.peaks = {"driver": 0, "java": 0, "workers": 0}
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Start sampling."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            now = Counter[str]()
            for pid, resident in _tree(self._pid):
                now["driver" if pid == self._pid else _kind(pid)] += resident
            self.peak_bytes = max(self.peak_bytes, now.total())
            self.peaks = {kind: max(peak, now[kind]) for kind, peak in self.peaks.items()}


def _tree(pid: int, size_of_parent: int = 0) -> Iterator[tuple[int, int]]:
    """Yield each process and its bytes; a child of its parent's size has none of its own: it is yet to exec."""
    size, resident = _memory(pid)
    yield pid, 0 if abs(size - size_of_parent) < _ALIKE * size else resident  # the parent may grow between two looks
    for child in _children(pid):
        yield from _tree(child, size)


def _kind(pid: int) -> str:
    try:
        return "java" if (_PROC / str(pid) / "comm").read_text().strip() == "java" else "workers"
    except OSError:
        return "workers"


def _children(pid: int) -> Iterator[int]:
    with suppress(OSError):  # it ended meanwhile
        for task in _PROC.glob(f"{pid}/task/*/children"):
            with suppress(OSError):  # one of its threads did
                yield from map(int, task.read_text().split())


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
