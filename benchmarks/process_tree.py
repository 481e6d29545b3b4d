"""The resident memory of a process and all its descendants, as Linux reports it."""

from __future__ import annotations

import os
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
    """Samples a process tree five times a second. Shared pages count in each process that shares them.

    `peak_bytes` is the peak of the sum. `peaks` has one for the process itself (`driver`), one for the JVMs below it
    (`java`) and one for all others (`workers`); they may be at different times.
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
    """Yield each process and its bytes. A child as large as its parent counts 0: it is forked, and has not exec'd."""
    size, resident = _memory(pid)
    yield pid, 0 if abs(size - size_of_parent) < _ALIKE * size else resident  # the parent may grow meanwhile
    for child in _children(pid):
        yield from _tree(child, size)


def pids_of(pid: int) -> Iterator[int]:
    """Yield the process and all below it."""
    yield pid
    for child in _children(pid):
        yield from pids_of(child)


def command_of(pid: int) -> str:
    """Return the command line of a process; nothing if it ended."""
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def pin_to(pid: int, core: int) -> None:
    """Let all threads of a process, and what they start from now on, run on one core."""
    for task in (_PROC / str(pid) / "task").iterdir():
        with suppress(OSError):  # this thread ended meanwhile
            os.sched_setaffinity(int(task.name), {core})


def _kind(pid: int) -> str:
    try:
        return "java" if (_PROC / str(pid) / "comm").read_text().strip() == "java" else "workers"
    except OSError:
        return "workers"


def _children(pid: int) -> Iterator[int]:
    with suppress(OSError):  # the process ended meanwhile
        for task in _PROC.glob(f"{pid}/task/*/children"):
            with suppress(OSError):  # this thread ended meanwhile
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
