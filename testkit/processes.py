"""Looking at processes from outside."""

import os
from pathlib import Path

from testkit.waiting import await_

_SESSION = 3  # of the fields after the name in /proc/<pid>/stat (proc(5))


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


def session(leader: int) -> dict[int, str]:
    """The processes that live in the session of a process, also of one that is gone: pid and command line."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, *fields = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile
        if int(fields[_SESSION - 1]) == leader and state != "Z":
            found[int(folder.name)] = command[:100]
    return found


def await_gone(pid: int, folder: Path) -> None:
    """Wait until neither the process nor the folder is there; AssertionError if they stay."""
    await_(lambda: not is_alive(pid) and not folder.exists(), lambda: f"process {pid} or {folder} is still there")
