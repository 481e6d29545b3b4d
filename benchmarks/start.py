"""A cold start: from the command until a running job has applied its first batch."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.broker import empty_broker
from benchmarks.job import Job
from benchmarks.results import Result, Samples

ROWS = ("start",)
_STARTS = 2
_OURS, _PLAIN = "as it is", "as at first"
# As it was before issue after issue made it faster, as far as settings can say that.
_AT_FIRST = {"spark.driver.extraJavaOptions": "-XX:+UseParallelGC", "spark.driver.extraClassPath": "."}
_WAYS = {_OURS: (), _PLAIN: tuple(word for pair in _AT_FIRST.items() for word in ("--conf", "=".join(pair)))}


def measure(_wanted: set[str], _scale: float) -> Iterator[Result]:
    """Start jobs of both ways in turn, each on new tables; a first one, which finds the files cold, does not count."""
    seconds = defaultdict[str, list[float]](list)
    with empty_broker() as kafka:
        _start(kafka.bootstrap_server)
        for _ in range(_STARTS):
            for way, options in _WAYS.items():
                seconds[way].append(_start(kafka.bootstrap_server, *options))
    ours, plain = (Samples.of(way, "s", seconds[way]) for way in (_OURS, _PLAIN))
    yield Result.ratio("start", ours, plain)


def _start(server: str, *options: str) -> float:
    with TemporaryDirectory() as folder:
        begun = time.time()
        with Job(server, Path(folder), *options) as job:
            at = job.await_line("Batch 0: ")
            job.stop()
    return at - begun
