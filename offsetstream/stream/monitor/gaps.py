"""Gaps in the offsets of a batch: records that compaction removed are missing in the history.

Transaction markers and aborted records take offsets too, but nothing is missing then. So a gap counts, unless the
settings of the topic keep compaction away from such young records, or the log itself still has everything.

Consumers return neither markers nor aborted records. So this sends fetch requests itself: their responses have complete
record batches, with both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from offsetstream.cluster import connection
from offsetstream.codec.batches import MAGIC, MAGIC_AT, Extent, read_batch
from offsetstream.codec.wire import DecodeError
from offsetstream.errors import ClusterError
from offsetstream.stream.monitor.broker_channel import FETCH, BrokerChannel, Leaders, Place, fetch_request, fetched
from offsetstream.stream.monitor.topics import TopicSettings
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.stream.records import Share

MOST_BYTES = 64 << 20  # of the log, for one call of `lost_offsets`
_FETCH_BYTES = 4 << 20
Ranges = Mapping[int, tuple[int, int]]  # the first offset and the end (exclusive), by offsets partition
LostOffsets = Callable[[Ranges], Mapping[int, int]]
_NOTHING = Share(0, None)


class Gaps:
    """Find the partitions in which a batch lacks records.

    `lost_offsets` returns how many offsets of each range no record batch of the log has any more. If it returns nothing
    for a range, or raises ClusterError, the offsets count as lost.
    """

    def __init__(self, book: PartitionBook, settings: TopicSettings, lost_offsets: LostOffsets) -> None:
        self._book = book
        self._settings = settings
        self._lost_offsets = lost_offsets

    def incomplete(self, ends: Mapping[int, int], shares: Mapping[int, Share]) -> list[int]:
        """Return the partitions in which a batch up to `ends`, read but not applied, lacks records."""
        gaps = {
            number: (row.applied, end)
            for number, end in ends.items()
            if (row := self._book.rows[number]).history_complete_from is not None
            and shares.get(number, _NOTHING).records < end - row.applied
            and not self._is_too_young(number)
        }
        lost: Mapping[int, int] = {}
        if gaps:
            with suppress(ClusterError):
                lost = self._lost_offsets(gaps)
        return [number for number in gaps if lost.get(number, 1) > 0]

    def _is_too_young(self, partition: int) -> bool:
        unread = self._book.unread_since(partition)
        if unread is None:
            return False
        since, age = unread
        return since > self._settings.uncompacted_since and age < self._settings.uncompacted_for


def lost_offsets(leaders: Leaders, epochs: Mapping[int, int | None], ranges: Ranges) -> dict[int, int]:
    """Return how many offsets of each range the log has no longer, by offsets partition.

    Offsets of markers count as present; so do aborted records that are still there. A partition is missing in the
    result if its leader is gone or older than Kafka 2.3, if the log does not cover the range, or if the call has used
    `MOST_BYTES` or 30 seconds. `epochs`: the known leader epochs. A broker with another epoch refuses the fetch: a
    former leader that does not know of the change may have another log.
    """
    lost: dict[int, int] = {}
    budget = _Budget()
    with suppress(ClusterError, _OverBudgetError):  # the counts so far are valid
        for channel, numbers in leaders.channels(ranges):
            for number in numbers:
                with suppress(DecodeError, _UnknownError):
                    place = Place(number, epochs.get(number), ranges[number][0])
                    lost[number] = _lost(channel, place, *ranges[number], budget)
    return lost


def _lost(channel: BrokerChannel, place: Place, start: int, end: int, budget: _Budget) -> int:
    at, lost = start, 0
    while at < end:
        answer = channel.ask(*FETCH, fetch_request([place._replace(offset=at)], _FETCH_BYTES))
        budget.take(len(answer))
        _, parts = fetched(answer)
        if not parts:  # the broker throttles
            raise _UnknownError
        part, batches = parts[0], list(parts[0].batches)
        if part.error or part.high_watermark < end or (part.records and not batches):
            raise _UnknownError
        if not batches:  # the log has none below the high watermark
            return lost + end - at
        for data in batches:
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


class _Budget:
    """The bytes and the time that a call has left."""

    def __init__(self) -> None:
        self._bytes = MOST_BYTES
        self._deadline = time.monotonic() + connection.TIMEOUT

    def take(self, size: int) -> None:
        self._bytes -= size
        if self._bytes < 0 or time.monotonic() > self._deadline:
            raise _OverBudgetError


class _UnknownError(Exception):
    """The leader does not answer, or its log does not cover the range. It never leaves this module."""


class _OverBudgetError(Exception):
    """The call needs too many bytes or too much time. It never leaves this module."""
