"""The job as users run it, a process in a session of its own: killed with its JVM, stopped, looked at from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

SECONDS = 240.0  # no assertion on time: only so that a failing test ends
_SESSION = 3  # of the fields after the name in /proc/<pid>/stat (proc(5))


class JobProcess:
    """``offsetstream run`` on tables and checkpoints in a folder; what it says goes to a file beside the folder."""

    def __init__(
        self,
        bootstrap_server: str,
        folder: Path,
        *options: str,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self._said = folder.with_name(f"{folder.name}-said.txt")
        places = ("--tables", str(folder / "tables"), "--checkpoint", str(folder / "checkpoints"))
        command = [sys.executable, "-m", "offsetstream", "run", "--bootstrap-server", bootstrap_server, *places]
        with self._said.open("w") as output:
            self.process = subprocess.Popen(
                [*command, *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(environment or {})},
                cwd=cwd,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self) -> str:
        return self._said.read_text()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the driver and its JVM, which are one process group."""
        os.killpg(self.pid, number)

    def kill(self) -> None:
        """SIGKILL the driver and its JVM in one system call, and wait until they are gone."""
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait()
        await_(lambda: not session(self.pid), lambda: f"still there: {session(self.pid)}")

    def await_(self, condition: Callable[[], bool]) -> None:
        def holds() -> bool:
            assert self.process.poll() is None, self.said()
            return condition()

        await_(holds, self.said)

    def ended(self) -> int:
        """Wait until the process ends; its exit code. AssertionError with what it said if it never does."""
        await_(lambda: self.process.poll() is not None, self.said)
        return int(self.process.returncode)


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


def await_(condition: Callable[[], bool], told: Callable[[], str]) -> None:
    """Wait until the condition holds; AssertionError with what ``told`` says if it never does."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, told()
        time.sleep(0.1)
