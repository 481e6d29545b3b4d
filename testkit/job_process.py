"""The job as users run it, a process in a session of its own: killed with its JVM, stopped, looked at from outside."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from testkit.command import OFFSETSTREAM
from testkit.processes import session
from testkit.waiting import await_


class RunningProcess:
    """A command in a session of its own, killed at the end of `with`; what it says goes to the file `said`."""

    def __init__(
        self, command: Sequence[str], said: Path, environment: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        self._said = said
        with said.open("w") as output:
            self.process = subprocess.Popen(
                command,
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


class JobProcess(RunningProcess):
    """`offsetstream run` on tables and checkpoints in a folder; what it says goes to a file beside the folder.

    `tables` names them where they are elsewhere.
    """

    def __init__(
        self,
        bootstrap_server: str,
        folder: Path,
        *options: str,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        tables: str | None = None,
    ) -> None:
        places = ("--tables", tables or str(folder / "tables"), "--checkpoint", str(folder / "checkpoints"))
        command = [*OFFSETSTREAM, "run", "--bootstrap-server", bootstrap_server, *places, *options]
        super().__init__(command, folder.with_name(f"{folder.name}-said.txt"), environment, cwd)
