"""Runs the job and other commands as users do, on tables and checkpoints in a folder or at a URI."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testkit.processes import OFFSETSTREAM, RunningProcess, offsetstream, printed


class StoredJob:
    """A cluster's tables at a place. `options` are for `run`; `environment` is for all commands."""

    def __init__(
        self,
        server: str,
        place: str,
        scratch: Path,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.tables, self.checkpoint = f"{place}/tables", f"{place}/checkpoints"
        self._server, self._scratch = server, scratch
        self._options, self._environment = options, environment
        self._number = 0

    def once(self, *options: str) -> str:
        """Apply everything that is in the topic now. Return the job's output."""
        done = offsetstream(*self._run(), "--once", *options, environment=self._environment)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def running(self, *options: str) -> RunningProcess:
        """Run the job in the context."""
        self._number += 1
        said = self._scratch / f"job-{self._number}.txt"
        return RunningProcess([*OFFSETSTREAM, *self._run(), *options], said, self._environment)

    def options(self, *more: str) -> list[str]:
        """Return the options for cluster and tables, for a job that a test starts itself."""
        return [*self._run()[1:], *more]

    def said(self, name: str) -> Path:
        """Return the output file for such a job."""
        return self._scratch / f"{name}.txt"

    def printed(self, *command: str) -> str:
        """Return the output of a command on the tables."""
        return printed(*command, "--tables", self.tables, environment=self._environment)

    def rows(self, *command: str) -> list[dict[str, Any]]:
        """Return the output of a command on the tables as rows."""
        rows: list[dict[str, Any]] = json.loads(self.printed(*command, "--output", "json"))
        return rows

    def verify(self) -> None:
        """Compare tables, history, topic and cluster; AssertionError with the differences if there are any."""
        self.printed("verify", "--bootstrap-server", self._server, "--history", "--settle", "180")

    def _run(self) -> list[str]:
        places = ("--tables", self.tables, "--checkpoint", self.checkpoint)
        return ["run", "--bootstrap-server", self._server, *places, *self._options]
