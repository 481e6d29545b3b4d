"""Counts the offsets that compaction removed, apart from those of markers and aborted records.

Consumers return neither kind. So this sends fetch requests itself: their responses have complete record batches, with
transaction markers and aborted records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from offsetstream.cluster import connection
from offsetstream.codec.batches import MAGIC, MAGIC_AT, Extent, read_batch
from offsetstream.codec.wire import DecodeError
from offsetstream.errors import ClusterError
from offsetstream.stream.monitor.broker_channel import BrokerChannel, Leaders
from offsetstream.stream.monitor.fetch import FETCH, Place, fetch_request, fetched

MOST_BYTES = 64 << 20  # of the log, for one call
_FETCH_BYTES = 4 << 20


class _Fetched(NamedTuple):
    """The batches from an offset on. Empty only if the log has none below the high watermark."""

    high_watermark: int
    batches: list[bytes]


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
                        place = Place(number, epochs.get(number), ranges[number][0])
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


def _lost(channel: BrokerChannel, place: Place, start: int, end: int, budget: _Budget) -> int:
    at, lost = start, 0
    while at < end:
        answer = channel.ask(*FETCH, fetch_request([place._replace(offset=at)], _FETCH_BYTES))
        budget.take(len(answer))
        found = _read(answer)
        if found.high_watermark < end:
            raise _UnknownError
        if not found.batches:
            return lost + end - at
        for data in found.batches:
            if at >= end:
                break
            base, batch_end, missing = _in_batch(data, at, end)
            lost += max(0, min(base, end) - at) + missing
            at = max(at, batch_end)
    return lost


def _in_batch(data: bytes, start: int, end: int) -> tuple[int, int, int]:
    """Return the start and the end of a batch, and how many of its offsets in [start, end) have no record."""
    is_old = data[MAGIC_AT] != MAGIC
    batch = read_batch(data, with_data=False)
    base, batch_end = batch.base_offset, batch.next_offset
    if batch.is_control or (not is_old and Extent.of(data).records == batch_end - base):
        return base, batch_end, 0
    start, end = max(start, base), min(end, batch_end)
    present = sum(start <= record.offset < end for record in read_batch(data).records)
    return base, batch_end, max(0, end - start) - present


def _read(answer: bytes) -> _Fetched:
    """Read the answer to a fetch of one partition."""
    _, parts = fetched(answer)
    if not parts:  # the broker throttles
        raise _UnknownError
    part = parts[0]
    batches = list(part.batches)
    if part.error or (part.records and not batches):
        raise _UnknownError
    return _Fetched(part.high_watermark, batches)
