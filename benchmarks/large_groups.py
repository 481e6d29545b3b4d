"""Batches of large groups: one of a thousand members that is written again and again, and hundreds of two hundred."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.batches import told_by
from benchmarks.broker import empty_broker
from benchmarks.commit_log import OFFSETS_PARTITIONS, Record, group_record
from benchmarks.job import Job
from benchmarks.results import Result, Samples, tell
from offsetstream.coordinator.partitioning import partition_for
from testkit.garbage import produce

_BATCHES = {"rewrites": (1, 1000, 50), "large-groups": (700, 200, 1)}  # groups, members of each, times
ROWS = tuple(_BATCHES)
_ROUNDS = 2


def measure(wanted: set[str], scale: float) -> Iterator[Result]:
    """Measure each batch as the job tells it, each time on new tables."""
    for name in wanted & _BATCHES.keys():
        groups, most, times = _BATCHES[name]
        members = max(1, round(most * scale))
        records = list(rewrites(groups, members, times))
        runs = [_batch(name, records) for _ in range(_ROUNDS)]
        peak = max(peak for _, peak in runs)
        what = f"groups: {groups}, members of each: {members}, times: {times}"
        samples = Samples.of(what, "s", (seconds for seconds, _ in runs))
        yield Result.of(name, samples, f"Peak of memory {peak / 2**30:.2f} GiB")


def rewrites(groups: int, members: int, times: int) -> Iterator[Record]:
    """Yield the records of so many groups, each rewritten so many times, as after rebalances."""
    for generation in range(times):
        for number in range(groups):
            group = f"large-{number}"
            yield partition_for(group, OFFSETS_PARTITIONS), *group_record(group, generation, members)


def _batch(name: str, records: list[Record]) -> tuple[float, int]:
    """Return the seconds that the job takes for them, and the peak of its memory in bytes."""
    with (
        empty_broker({"message.max.bytes": "12000000"}) as kafka,
        tempfile.TemporaryDirectory(prefix="offsetstream-bench-") as folder,
    ):
        with Job(kafka.bootstrap_server, Path(folder), "--once") as job:
            job.finish()
        produce(kafka.bootstrap_server, iter(records), 1_000_000)
        with Job(kafka.bootstrap_server, Path(folder), "--once") as job:
            job.finish()
        seconds = sum(seconds for _, _, seconds in told_by(job))
        if not seconds:
            raise RuntimeError("the job had no batch:\n" + "\n".join(line for _, line in job.lines))
        return tell(name, seconds), job.peak_bytes
