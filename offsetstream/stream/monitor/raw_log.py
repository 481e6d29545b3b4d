"""Counts the offsets that compaction removed, apart from those of markers and aborted records.

Consumers return neither kind. So this sends fetch requests itself: their responses have complete record batches, with
transaction markers and aborted records.
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

MOST_BYTES = 64 << 20  # of the log, for one call
_FETCH_BYTES = 4 << 20
_FETCH = (1, 11)  # Fetch: key and version
_PLACE, _MAGIC_AT = struct.Struct(">qi"), 16
# error, high watermark, last stable offset, log start offset, count of aborted transactions: after topic and partition
_ANSWER = struct.Struct(">hqqqi")
_ABORTED_BYTES = 16


class _Fetched(NamedTuple):
    """The batches from an offset on. Empty only if the log has none below the high watermark."""

    high_watermark: int
    batches: list[bytes]


class _Place(NamedTuple):
    """An offsets partition and its leader epoch; None if that is unknown."""

    number: int
    epoch: int | None


class _UnknownError(Exception):
    """The leader does not answer, or its log does not cover the range. It never leaves this module."""


class _OverBudgetError(Exception):
    """The call needs too many bytes or too much time. It never leaves this module."""


class RawLog:
    """Fetch record batches from the leaders of the offsets partitions.

    `epochs` returns the known leader epochs. A broker with another epoch refuses the fetch: a former leader that does
    not know of the change may have another log.
    """

    def __init__(self, leaders: Leaders, epochs: Callable[[], Mapping[int, int | None]]) -> None:
        self._leaders = leaders
        self._epochs = epochs

    def lost_offsets(self, ranges: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """Return how many offsets of each range [start, end) the log has no longer, by offsets partition.

        Offsets of markers count as present; so do aborted records that are still there. A partition is missing in the
        result if its leader is gone or older than Kafka 2.3, if the log does not cover the range, or if the call has
        used `MOST_BYTES` or 30 seconds.
        """
        lost: dict[int, int] = {}
        budget, epochs = _Budget(), self._epochs()
        with suppress(ClusterError, _OverBudgetError):  # the counts so far are valid
            for channel, numbers in self._leaders.channels(ranges):
                for number in numbers:
                    with suppress(DecodeError, _UnknownError):
                        place = _Place(number, epochs.get(number))
                        lost[number] = _lost(channel, place, *ranges[number], budget)
        return lost


class _Budget:
    """The bytes and the time that a call has left."""

    def __init__(self) -> None:
        self._bytes = MOST_BYTES
        self._deadline = time.monotonic() + connection.TIMEOUT

    def take(self, size: int) -> None:
        self._bytes -= size
        if self._bytes < 0 or time.monotonic() > self._deadline:
            raise _OverBudgetError


def _lost(channel: BrokerChannel, place: _Place, start: int, end: int, budget: _Budget) -> int:
    at, lost = start, 0
    while at < end:
        answer = channel.ask(*_FETCH, _request(place, at))
        budget.take(len(answer))
        fetched = _read(answer)
        if fetched.high_watermark < end:
            raise _UnknownError
        if not fetched.batches:
            return lost + end - at
        for data in fetched.batches:
            if at >= end:
                break
            base, batch_end, missing = _in_batch(data, at, end)
            lost += max(0, min(base, end) - at) + missing
            at = max(at, batch_end)
    return lost


def _in_batch(data: bytes, start: int, end: int) -> tuple[int, int, int]:
    """Return the start and the end of a batch, and how many of its offsets in [start, end) have no record."""
    is_old = data[_MAGIC_AT] != MAGIC
    batch = read_message(data) if is_old else read_batch(data, with_data=False)
    base, batch_end = batch.base_offset, batch.next_offset
    if batch.is_control or (not is_old and record_count(data) == batch_end - base):
        return base, batch_end, 0
    start, end = max(start, base), min(end, batch_end)
    records = batch.records if is_old else read_batch(data).records
    present = sum(start <= record.offset < end for record in records)
    return base, batch_end, max(0, end - start) - present


def _request(place: _Place, offset: int) -> bytes:
    """Return the body of a fetch of one partition: without waiting, read_uncommitted, without a fetch session."""
    epoch = -1 if place.epoch is None else place.epoch
    head = struct.pack(">iiiibii", -1, 0, 0, _FETCH_BYTES, 0, 0, -1)
    partition = struct.pack(">iiiqqi", 1, place.number, epoch, offset, -1, _FETCH_BYTES)
    return head + struct.pack(">i", 1) + text(OFFSETS_TOPIC) + partition + struct.pack(">i", 0) + text("")


def _read(answer: bytes) -> _Fetched:
    """Read the response to `_request`: throttle time, error, session, one topic with one partition."""
    (error,) = struct.unpack_from(">h", answer, 4)
    at = 14 + len(text(OFFSETS_TOPIC)) + 8
    if error or len(answer) < at + _ANSWER.size:
        raise _UnknownError
    error, high_watermark, _, _, aborted = _ANSWER.unpack_from(answer, at)
    at += _ANSWER.size + max(0, aborted) * _ABORTED_BYTES + 4  # and the preferred replica
    if error:
        raise _UnknownError
    (size,) = struct.unpack_from(">i", answer, at)
    records = answer[at + 4 : at + 4 + max(0, size)]
    batches = list(_complete_batches(records))
    if records and not batches:
        raise _UnknownError
    return _Fetched(high_watermark, batches)


def _complete_batches(data: bytes) -> Iterator[bytes]:
    """Split records into batches. Skip the last one if the size limit of the fetch has cut it."""
    at = 0
    while at + _MAGIC_AT < len(data):
        _, size = _PLACE.unpack_from(data, at)
        end = at + _PLACE.size + size
        if size < SMALLEST_SIZE or end > len(data):
            return
        yield data[at:end]
        at = end
