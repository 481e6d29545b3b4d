"""First loads of a compacted topic with 100 offsets per record, and of a topic with as many records and no gaps.

This module writes the segments itself while the broker is down, since compaction would take too long.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from google_crc32c import value as crc32c

from benchmarks.broker import empty_broker, segments_at_rest
from benchmarks.commit_log import OFFSETS_PARTITIONS, Groups
from benchmarks.load import load
from benchmarks.results import Result, Samples
from testkit.segments import record

ROWS = ("gaps",)
_RECORDS, _OFFSETS_PER_RECORD, _ROUNDS = 500_000, 100, 2
_IN_BATCH = 500
_HEADER = struct.Struct(">qiibI")  # base offset, length, leader epoch, magic, CRC
_CHECKED = struct.Struct(">hiqqqhii")  # attributes, last offset delta, two timestamps, producer and its epoch, ...
_NO_PRODUCER = (-1, -1)


def measure(wanted: set[str], scale: float) -> Iterator[Result]:  # noqa: ARG001 - the signature of all suites
    """Load each topic twice."""
    groups = Groups(round(_RECORDS * scale))  # compaction leaves one record of each cell
    sparse, dense = (
        Samples.of(what, "s", _loads(groups, step))
        for what, step in ((f"{_OFFSETS_PER_RECORD} offsets per record", _OFFSETS_PER_RECORD), ("dense", 1))
    )
    yield Result.ratio("gaps", sparse, dense, f"{groups.cells:,} records")


def _loads(groups: Groups, step: int) -> list[float]:
    with empty_broker() as kafka:
        with segments_at_rest(kafka) as segments:
            for partition, records in enumerate(_by_partition(groups)):
                _append(segments[partition], records, step)
        return [load(kafka.bootstrap_server, groups.cells, groups.cells).seconds for _ in range(_ROUNDS)]


def _by_partition(groups: Groups) -> list[list[tuple[bytes, bytes]]]:
    found: list[list[tuple[bytes, bytes]]] = [[] for _ in range(OFFSETS_PARTITIONS)]
    for partition, key, value in groups.commits(0, groups.cells):
        found[partition].append((key, value))
    return found


def _append(segment: Path, records: Sequence[tuple[bytes, bytes]], step: int) -> None:
    """Append the records, `step` offsets apart, to a log that has at most one record."""
    bodies = [(at * step, _body(records[at : at + _IN_BATCH], step)) for at in range(0, len(records), _IN_BATCH)]
    with segment.open("ab") as file:
        for first, body in bodies:
            file.write(_HEADER.pack(first + 1, len(body) + 9, 0, 2, crc32c(body)) + body)


def _body(records: Sequence[tuple[bytes, bytes]], step: int) -> bytes:
    """Return the part of a batch that its checksum covers: all from the attributes on."""
    now = int(time.time() * 1000)
    data = b"".join(record(number * step, key, value) for number, (key, value) in enumerate(records))
    return _CHECKED.pack(0, (len(records) - 1) * step, now, now, *_NO_PRODUCER, -1, len(records)) + data
