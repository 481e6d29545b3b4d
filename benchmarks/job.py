"""Runs the job as a process, as users do, and keeps its output with the time of each line."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.process_tree import PeakMemory, command_of, pids_of, pin_to
from testkit.processes import OFFSETSTREAM
from testkit.waiting import at_work

_SECONDS = 600.0  # no measurement takes longer
_LOOK_SECONDS = 0.02
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


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

    def pause(self) -> None:
        """Stop all its processes where they are."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let them continue."""
        self._signal(signal.SIGCONT)

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Pin each executor of Spark to a core of its own, with the Python workers that it starts."""

        def pin(ended: threading.Event) -> None:
            cores, found = sorted(os.sched_getaffinity(0)), list[int]()
            while not ended.wait(_LOOK_SECONDS):
                for pid in pids_of(self._process.pid):
                    if pid not in found and _EXECUTOR in command_of(pid):
                        found.append(pid)
                        pin_to(pid, cores[found.index(pid) % len(cores)])

        with at_work(pin):
            yield

    def await_line(self, text: str) -> float:
        """Wait for a line that contains the text, and return its time."""

        def found() -> list[float]:
            return [at for at, line in list(self.lines) if text in line]

        self.await_that(lambda: bool(found()), f"logged {text!r}")
        return found()[0]

    def await_that(self, is_so: Callable[[], bool], what: str = "applied all") -> None:
        """Wait until something is so. RuntimeError with its output if the job ends before, or takes ten minutes."""
        deadline = time.monotonic() + _SECONDS
        while not is_so():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"the job never {what}:\n" + "\n".join(line for _, line in self.lines))
            time.sleep(_LOOK_SECONDS)

    def _signal(self, number: signal.Signals) -> None:
        for pid in pids_of(self._process.pid):
            os.kill(pid, number)

    def _read(self) -> None:
        for line in self._process.stderr or ():
            self.lines.append((time.time(), line.rstrip()))
