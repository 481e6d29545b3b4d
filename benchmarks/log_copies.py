"""Lengthens a log by copies of its own records, while the broker is down: this takes a tenth of the time of writing."""

from __future__ import annotations

import struct
from pathlib import Path

from benchmarks.broker import FIRST_GROUP, segments_at_rest
from benchmarks.commit_log import OFFSETS_PARTITIONS, Groups, write
from offsetstream.codec.batches import LAST_DELTA_AT
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.embedded.kafka import EmbeddedKafka

_BASE_OFFSET, _LENGTH = struct.Struct(">q"), struct.Struct(">i")
_HEAD = _BASE_OFFSET.size + _LENGTH.size  # the length of a batch does not count these
_LAST_DELTA = struct.Struct(">i")
_FIRST_LOG = partition_for(FIRST_GROUP, OFFSETS_PARTITIONS)
_TIMES = 8


def in_copies(commits: float) -> int:
    """Round to a number of commits that `write_copies` can write."""
    return _TIMES * round(commits / _TIMES)


def write_copies(kafka: EmbeddedKafka, groups: Groups, commits: int) -> None:
    """Write an eighth of the commits, and copy them seven times; the eighth must have all cells."""
    write(kafka.bootstrap_server, groups.log(commits // _TIMES))
    lengthen_log(kafka, _TIMES)


def lengthen_log(kafka: EmbeddedKafka, times: int) -> None:
    """Make each log of the offsets topic `times` as long; the commit that created the topic is not copied."""
    with segments_at_rest(kafka) as segments:
        for partition, segment in segments.items():
            _lengthen(segment, times, skipped=int(partition == _FIRST_LOG))


def _lengthen(segment: Path, times: int, skipped: int) -> None:
    """Append copies with new offsets; the checksum of a batch does not cover its base offset."""
    data = bytearray(segment.read_bytes())
    starts, at, end = list[int](), 0, 0
    while at < len(data):
        starts.append(at)
        end = _BASE_OFFSET.unpack_from(data, at)[0] + _LAST_DELTA.unpack_from(data, at + LAST_DELTA_AT)[0] + 1
        at += _HEAD + _LENGTH.unpack_from(data, at + _BASE_OFFSET.size)[0]
    again = starts[skipped:]
    if not again:
        return
    with segment.open("ab") as file:
        for _ in range(times - 1):
            for start in again:
                _BASE_OFFSET.pack_into(data, start, _BASE_OFFSET.unpack_from(data, start)[0] + end - skipped)
            file.write(memoryview(data)[again[0] :])
