"""A cold start: from the command until a running job has applied its first batch, on an empty topic."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.broker import empty_broker
from benchmarks.job import Job
from benchmarks.results import Result, Samples

ROWS = ("start",)
_STARTS = 5


def measure(_wanted: set[str], _scale: float) -> Iterator[Result]:
    """Start a job on new tables several times; the first time, when the machine's files are cold, does not count."""
    with empty_broker() as kafka:
        seconds = [_start(kafka.bootstrap_server) for _ in range(_STARTS + 1)]
    yield Result.of("start", Samples.of("command to first batch", "s", seconds[1:]))


def _start(server: str) -> float:
    with TemporaryDirectory() as folder:
        begun = time.time()
        with Job(server, Path(folder)) as job:
            at = job.await_line("Batch 0: ")
            job.stop()
    return at - begun
