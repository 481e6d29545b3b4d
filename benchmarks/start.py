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
_OURS, _PLAIN = "with archives and settings", "without"
# These settings replace ours, and keep Java from using the archives.
_PLAIN_CONF = {"spark.driver.extraJavaOptions": "-XX:+UseParallelGC", "spark.driver.extraClassPath": "."}
_WAYS = {_OURS: (), _PLAIN: tuple(word for pair in _PLAIN_CONF.items() for word in ("--conf", "=".join(pair)))}


def measure(_wanted: set[str], _scale: float) -> Iterator[Result]:
    """Start jobs both ways in turn, each on new tables, after a first start that warms up the file cache."""
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
        started = time.time()
        with Job(server, Path(folder), *options) as job:
            at = job.await_line("Batch 0: ")
            job.stop()
    return at - started
