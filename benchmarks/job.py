"""Runs the job as a process, as users do, and keeps its output with the time of each line."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.process_tree import PeakMemory
from testkit.processes import OFFSETSTREAM

_SECONDS = 600.0  # no measurement takes longer
_LOOK_SECONDS = 0.02


class Job:
    """`offsetstream run` with tables and checkpoints in `folder`. Use it in a `with`, which kills a running job.

    `lines` has the output so far: the time of each line (seconds since 1970) and its text.
    """

    def __init__(self, bootstrap_server: str, folder: Path, *options: str) -> None:
        places = ("--tables", str(folder / "tables"), "--checkpoint", str(folder / "checkpoints"))
        command = [*OFFSETSTREAM, "run", "--bootstrap-server", bootstrap_server, *places, *options]
        self.lines: list[tuple[float, str]] = []
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "200"}
        )
        self._reader = threading.Thread(target=self._read)
        self._memory = PeakMemory(self._process.pid)

    def __enter__(self) -> Self:
        self._reader.start()
        self._memory.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()
        self._memory.stop()

    @property
    def peak_bytes(self) -> int:
        """The peak resident memory of the process and its children so far."""
        return self._memory.peak_bytes

    def finish(self) -> None:
        """Wait until the job ends by itself. RuntimeError with its output if it failed."""
        if self._process.wait(_SECONDS) != 0:
            raise RuntimeError("the job failed:\n" + "\n".join(line for _, line in self.lines))

    def stop(self) -> None:
        """Ask the job to end after its current batch, and wait for it."""
        self._process.terminate()
        self.finish()

    def await_line(self, text: str) -> float:
        """Wait for a line that contains the text, and return its time."""
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            for at, line in list(self.lines):
                if text in line:
                    return at
            if self._process.poll() is not None:
                break
            time.sleep(_LOOK_SECONDS)
        raise RuntimeError(f"the job never logged {text!r}:\n" + "\n".join(line for _, line in self.lines))

    def _read(self) -> None:
        for line in self._process.stderr or ():
            self.lines.append((time.time(), line.rstrip()))
