"""Batches of large groups: a group of 1,000 members that is written 50 times, and 700 groups of 200 members."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path

from benchmarks.batches import logged_batches
from benchmarks.broker import empty_broker
from benchmarks.commit_log import OFFSETS_PARTITIONS, Record, group_record
from benchmarks.job import Job
from benchmarks.results import Result, Samples, print_seconds
from offsetstream.coordinator.partitioning import partition_for
from testkit.garbage import produce

_BATCHES = {"rewrites": (1, 1000, 50), "large-groups": (700, 200, 1)}  # groups, members of each, times
ROWS = tuple(_BATCHES)
_ROUNDS = 2


def measure(wanted: set[str], scale: float) -> Iterator[Result]:
    """Measure all batches twice, each with a new process of the job, and each round on new tables."""
    names = [name for name in _BATCHES if name in wanted]
    runs = defaultdict[str, list[tuple[float, int]]](list)
    for _ in range(_ROUNDS):
        for name, seconds, peak in _round(names, scale):
            runs[name].append((seconds, peak))
    for name, found in runs.items():
        groups, members, times = _size(name, scale)
        what = f"groups: {groups}, members of each: {members}, times: {times}"
        samples = Samples.of(what, "s", (seconds for seconds, _ in found))
        yield Result.of(name, samples, f"Peak memory {max(peak for _, peak in found) / 2**30:.2f} GiB")


def _size(name: str, scale: float) -> tuple[int, int, int]:
    groups, members, times = _BATCHES[name]
    return groups, max(1, round(members * scale)), times


def rewrites(name: str, groups: int, members: int, times: int) -> Iterator[Record]:
    """Yield the records of groups that are each written `times` times, as after rebalances."""
    for generation in range(times):
        for number in range(groups):
            group = f"{name}-{number}"
            yield partition_for(group, OFFSETS_PARTITIONS), *group_record(group, generation, members)


def _round(names: Collection[str], scale: float) -> Iterator[tuple[str, float, int]]:
    """Yield the name of each batch, its seconds, and the peak memory of the job in bytes."""
    with (
        empty_broker({"message.max.bytes": "12000000"}) as kafka,
        tempfile.TemporaryDirectory(prefix="offsetstream-bench-") as folder,
    ):
        _run(kafka.bootstrap_server, folder)
        for name in names:
            # The generator runs while records are sent, so each gets its own time: equal times would make one step.
            produce(kafka.bootstrap_server, rewrites(name, *_size(name, scale)), 1_000_000)
            job = _run(kafka.bootstrap_server, folder)
            seconds = sum(seconds for _, _, seconds in logged_batches(job))
            if not seconds:
                raise RuntimeError("the job had no batch:\n" + "\n".join(line for _, line in job.lines))
            yield name, print_seconds(name, seconds), job.peak_bytes


def _run(server: str, folder: str) -> Job:
    with Job(server, Path(folder), "--once") as job:
        job.finish()
    return job
