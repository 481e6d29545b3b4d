"""Batches of large groups: one of a thousand members that is written again and again, and hundreds of two hundred."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterator
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
    """Measure one batch after the other, each by a job of its own, and all that on new tables again."""
    names = [name for name in _BATCHES if name in wanted]
    runs = defaultdict[str, list[tuple[float, int]]](list)
    for _ in range(_ROUNDS):
        for name, seconds, peak in _round(names, scale):
            runs[name].append((seconds, peak))
    for name, found in runs.items():
        groups, members, times = _size(name, scale)
        what = f"groups: {groups}, members of each: {members}, times: {times}"
        samples = Samples.of(what, "s", (seconds for seconds, _ in found))
        yield Result.of(name, samples, f"Peak of memory {max(peak for _, peak in found) / 2**30:.2f} GiB")


def _size(name: str, scale: float) -> tuple[int, int, int]:
    groups, members, times = _BATCHES[name]
    return groups, max(1, round(members * scale)), times


def rewrites(name: str, groups: int, members: int, times: int) -> Iterator[Record]:
    """Yield the records of so many groups, each rewritten so many times, as after rebalances."""
    for generation in range(times):
        for number in range(groups):
            group = f"{name}-{number}"
            yield partition_for(group, OFFSETS_PARTITIONS), *group_record(group, generation, members)


def _round(names: Collection[str], scale: float) -> Iterator[tuple[str, float, int]]:
    """Yield, of each batch, the seconds that the job takes for it, and the peak of its memory in bytes."""
    with (
        empty_broker({"message.max.bytes": "12000000"}) as kafka,
        tempfile.TemporaryDirectory(prefix="offsetstream-bench-") as folder,
    ):
        _run(kafka.bootstrap_server, folder)
        for name in names:
            # Made as they are sent, so that each has a time of its own: those with one time would be one step.
            produce(kafka.bootstrap_server, rewrites(name, *_size(name, scale)), 1_000_000)
            job = _run(kafka.bootstrap_server, folder)
            seconds = sum(seconds for _, _, seconds in told_by(job))
            if not seconds:
                raise RuntimeError("the job had no batch:\n" + "\n".join(line for _, line in job.lines))
            yield name, tell(name, seconds), job.peak_bytes


def _run(server: str, folder: str) -> Job:
    with Job(server, Path(folder), "--once") as job:
        job.finish()
    return job
