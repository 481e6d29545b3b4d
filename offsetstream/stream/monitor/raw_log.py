"""What is left of the log's offsets: compaction told from markers and aborted records, which no consumer shows.

A fetch as followers and consumers make it gives whole record batches, with those of markers and aborted transactions.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from offsetstream.cluster import connection
from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.codec.batch_format import MAGIC, read_batch, record_count
from offsetstream.codec.message_format import SMALLEST_SIZE, read_message
from offsetstream.codec.wire import DecodeError
from offsetstream.errors import ClusterError
from offsetstream.stream.monitor.broker_channel import BrokerChannel, Leaders, text

MOST_BYTES = 64 << 20  # of the log, for one question
_FETCH_BYTES = 4 << 20
_FETCH = (1, 11)  # Fetch: key and version
_PLACE, _MAGIC_AT = struct.Struct(">qi"), 16
# error, high watermark, last stable offset, log start offset, count of aborted transactions: after topic and partition
_ANSWER = struct.Struct(">hqqqi")
_ABORTED_BYTES = 16


class _Fetched(NamedTuple):
    """What lies in the log from an offset on; no batches only where nothing lies below the high watermark."""

    high_watermark: int
    batches: list[bytes]


class _Place(NamedTuple):
    """An offsets partition and its leader epoch, None where that is not known."""

    number: int
    epoch: int | None


class _Untold(Exception):  # noqa: N818 - it never leaves this module
    """The leader does not tell."""


class _OverBudget(Exception):  # noqa: N818 - nor does this
    """Too many bytes, or too long."""


class RawLog:
    """Reads the log's record batches from the partitions' leaders.

    `epochs` gives the leader epochs that are known: who leads in another one does not tell, as a broker that leads no
    more, and has not heard of it, may have a log of its own.
    """

    def __init__(self, leaders: Leaders, epochs: Callable[[], Mapping[int, int | None]]) -> None:
        self._leaders = leaders
        self._epochs = epochs

    def lost_offsets(self, ranges: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """Return how many offsets of each range [start, end), by offsets partition, are in the log no more.

        Those of markers count as present, and of aborted records as long as these are there. Partitions of which it
        cannot be told are left out: their leader is gone or too old (before Kafka 2.3), their log begins behind the
        start or ends before the end, or it takes more than `MOST_BYTES` or 30 seconds in all.
        """
        lost: dict[int, int] = {}
        budget, epochs = _Budget(), self._epochs()
        with suppress(ClusterError, _OverBudget):  # what was counted until then is right
            for channel, numbers in self._leaders.channels(ranges):
                for number in numbers:
                    with suppress(DecodeError, _Untold):
                        place = _Place(number, epochs.get(number))
                        lost[number] = _lost(channel, place, *ranges[number], budget)
        return lost


class _Budget:
    """What is left of the bytes and the time of a question."""

    def __init__(self) -> None:
        self._bytes = MOST_BYTES
        self._deadline = time.monotonic() + connection.TIMEOUT

    def take(self, size: int) -> None:
        self._bytes -= size
        if self._bytes < 0 or time.monotonic() > self._deadline:
            raise _OverBudget


def _lost(channel: BrokerChannel, place: _Place, start: int, end: int, budget: _Budget) -> int:
    at, lost = start, 0
    while at < end:
        answer = channel.ask(*_FETCH, _request(place, at))
        budget.take(len(answer))
        fetched = _read(answer)
        if fetched.high_watermark < end:
            raise _Untold
        if not fetched.batches:
            return lost + end - at
        for data in fetched.batches:
            if at >= end:
                break
            base, behind, missing = _in_batch(data, at, end)
            lost += max(0, min(base, end) - at) + missing
            at = max(at, behind)
    return lost


def _in_batch(data: bytes, start: int, end: int) -> tuple[int, int, int]:
    """Return where a batch begins and ends, and how many of its offsets from `start` to `end` have no record."""
    is_old = data[_MAGIC_AT] != MAGIC
    batch = read_message(data) if is_old else read_batch(data, with_data=False)
    base, behind = batch.base_offset, batch.next_offset
    if batch.is_control or (not is_old and record_count(data) == behind - base):
        return base, behind, 0
    start, end = max(start, base), min(end, behind)
    records = batch.records if is_old else read_batch(data).records
    there = sum(start <= record.offset < end for record in records)
    return base, behind, max(0, end - start) - there


def _request(place: _Place, offset: int) -> bytes:
    """Ask for one partition's log from an offset on, at once, read_uncommitted, without a fetch session."""
    epoch = -1 if place.epoch is None else place.epoch
    head = struct.pack(">iiiibii", -1, 0, 0, _FETCH_BYTES, 0, 0, -1)
    partition = struct.pack(">iiiqqi", 1, place.number, epoch, offset, -1, _FETCH_BYTES)
    return head + struct.pack(">i", 1) + text(OFFSETS_TOPIC) + partition + struct.pack(">i", 0) + text("")


def _read(answer: bytes) -> _Fetched:
    """Read the answer to `_request`: throttle time, error, session, one topic with one partition."""
    (error,) = struct.unpack_from(">h", answer, 4)
    at = 14 + len(text(OFFSETS_TOPIC)) + 8
    if error or len(answer) < at + _ANSWER.size:
        raise _Untold
    error, high_watermark, _, _, aborted = _ANSWER.unpack_from(answer, at)
    at += _ANSWER.size + max(0, aborted) * _ABORTED_BYTES + 4  # and the preferred replica
    if error:
        raise _Untold
    (size,) = struct.unpack_from(">i", answer, at)
    records = answer[at + 4 : at + 4 + max(0, size)]
    batches = list(_whole_batches(records))
    if records and not batches:
        raise _Untold
    return _Fetched(high_watermark, batches)


def _whole_batches(data: bytes) -> Iterator[bytes]:
    """Cut records into batches; the last may have been cut off by the limit of the fetch."""
    at = 0
    while at + _MAGIC_AT < len(data):
        _, size = _PLACE.unpack_from(data, at)
        end = at + _PLACE.size + size
        if size < SMALLEST_SIZE or end > len(data):
            return
        yield data[at:end]
        at = end
