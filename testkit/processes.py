"""Looking at processes from outside."""

import os
import time
from pathlib import Path

_SECONDS = 60.0  # no assertion on time: only so that a failing test ends


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def descendants(pid: int) -> list[int]:
    """Return the children of a process, theirs, and so on (Linux)."""
    children = [
        int(child) for tasks in Path(f"/proc/{pid}/task").glob("*/children") for child in tasks.read_text().split()
    ]
    return [found for child in children for found in (child, *descendants(child))]


def await_gone(pid: int, folder: Path) -> None:
    """Wait until neither the process nor the folder is there; AssertionError if they stay."""
    deadline = time.monotonic() + _SECONDS
    while is_alive(pid) or folder.exists():
        assert time.monotonic() < deadline, f"process {pid} or {folder} is still there"
        time.sleep(0.05)
