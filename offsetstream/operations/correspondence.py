"""How an offset of one cluster is found in another one's copy of its log: by the time of the record that it names.

The copy has the same records in the same order, under other offsets. A group that has read all before an offset reads
on, in the copy, at the first record of the time of the record there or later: nothing is left out, and those of that
time and later that come before it are read again. Who has read all there was goes on at the first of the newest time.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from offsetstream.cluster.committed import Place
from offsetstream.cluster.log_ends import NO_TOPIC, Answers, LogEnd, NoEnd, TopicPlace
from offsetstream.cluster.metadata import MetadataCache
from offsetstream.cluster.permissions import require_to_read
from offsetstream.cluster.reading import Position, ends_of, first_at_each, first_since, once_at_a_time
from offsetstream.cluster.records_at import Record
from offsetstream.errors import ClusterError

Offsets: TypeAlias = Mapping[str, Mapping[Place, int]]
_ATTEMPTS = 3


@dataclass(frozen=True)
class Timed:
    """The time (milliseconds since 1970) by which to look for an offset, and how many before it are read again then.

    `read_again` are offsets: where the log has gaps, fewer records.
    """

    since_ms: int
    read_again: int


def times_of(
    cluster: MetadataCache, properties: Mapping[str, str], offsets: Offsets, timeout: float
) -> tuple[dict[Position, Timed], set[Place]]:
    """Return the time of each offset of the groups, and the partitions that are there no longer.

    ClusterError where the time of one is not told; needs READ on the topics, and raises what `Connection` does.
    """
    places = {place for of_group in offsets.values() for place in of_group}
    require_to_read(cluster, {topic for topic, _ in places})
    ends = ends_of(cluster, places, time.monotonic() + timeout)
    known = {place: end for place in places if isinstance(end := ends.get(TopicPlace(*place)), LogEnd)}
    gone = {place for place in places if ends[TopicPlace(*place)] == NoEnd(None, NO_TOPIC)}
    if silent := sorted(places - set(known) - gone):
        raise ClusterError(f"where the log of {_named(silent[0])} ends is not known: try again once it has a leader")
    keys = {(place, offset) for of_group in offsets.values() for place, offset in of_group.items() if place in known}
    in_log = {key: min(max(key[1], known[key[0]].log_start_offset or 0), known[key[0]].high_watermark) for key in keys}
    positions = {(place, offset) for (place, _), offset in in_log.items()}
    timed = _timed(cluster, properties, known, positions, timeout)
    return {key: timed[key[0], offset] for key, offset in in_log.items()}, gone


def _timed(
    cluster: MetadataCache,
    properties: Mapping[str, str],
    ends: Mapping[Place, LogEnd],
    positions: Collection[Position],
    timeout: float,
) -> dict[Position, Timed]:
    """Return the time of each position in its log."""
    found: dict[Position, Timed] = {}
    left, known = set(positions), dict(ends)
    for _ in range(_ATTEMPTS):
        since, by_newest = _times(cluster, properties, known, left, timeout)
        deadline = time.monotonic() + timeout
        first = first_of_times(cluster, {(place, at) for (place, _), at in since.items()}, deadline)
        # Of a log that is written to, the newest record may have come after its end was asked for: then it was not
        # read, and the time of the first that came is the one.
        left = {key for key in by_newest if first.get((key[0], since[key]), key[1]) > key[1]}
        for key in since.keys() - left:
            place, offset = key
            at = since[key]
            again = offset - first.get((place, at), offset) if at else offset  # nothing is there: all there ever was
            found[key] = Timed(at, max(again, 0))
        if not left:
            return found
        told = ends_of(cluster, {place for place, _ in left}, deadline)
        known |= {(place.topic, place.partition): end for place, end in told.items() if isinstance(end, LogEnd)}
    raise ClusterError(f"{_named(next(iter(left))[0])} is written to faster than its newest record can be asked for")


def _times(
    cluster: MetadataCache,
    properties: Mapping[str, str],
    ends: Mapping[Place, LogEnd],
    wanted: Collection[Position],
    timeout: float,
) -> tuple[dict[Position, int], set[Position]]:
    """Return the time of the record at each offset; where all is read that of the newest, and which these are.

    It is 0 where the log has no record.
    """
    found: dict[Position, int] = {}
    unread = {key for key in wanted if key[1] < ends[key[0]].high_watermark}
    answers: Answers = {TopicPlace(*place): end for place, end in ends.items()}
    deadline = time.monotonic() + timeout
    read = first_at_each(
        cluster, properties, unread, ends=answers, isolation_level="read_uncommitted", deadline=deadline
    )
    for (place, offset), reading in read.items():
        record = next(iter(reading.records), None)
        if record is not None and record.timestamp_ms is not None:
            found[place, offset] = record.timestamp_ms
        elif reading.error is not None or record is not None:
            why = reading.error or "its records have no time"
            raise ClusterError(f"when the record of {_named(place)} at {offset} was written is not told: {why}")
    left = set(wanted) - set(found)  # all is read, or only control records are left
    newest = cluster.record_times({TopicPlace(*place): 0 for place, _ in left})
    for place, offset in left:
        end = ends[place]
        times = newest.get(TopicPlace(*place))
        if times is None and end.high_watermark > (end.log_start_offset or 0):
            raise ClusterError(
                f"when the newest record of {_named(place)} was written is not told (KIP-734: Kafka 3.0)"
            )
        found[place, offset] = max(times.newest_ms, 0) if times is not None else 0
    return found, left


def first_of_times(
    cluster: MetadataCache, wanted: Collection[tuple[Place, int]], deadline: float
) -> dict[tuple[Place, int], int]:
    """Return the first offset of each time or later, of those that have one; ClusterError where one is not told."""
    found: dict[tuple[Place, int], int] = {}
    for round_ in once_at_a_time(wanted):
        told = first_since(cluster, {TopicPlace(*place): at for place, at in round_.items()}, deadline)
        for place, first in told.items():
            if isinstance(first, str):
                raise ClusterError(f"which record of {_named(place)} is the first of a time is not told: {first}")
            if first is not None:
                found[(place.topic, place.partition), round_[place]] = first
    return found


def other_times(
    cluster: MetadataCache,
    properties: Mapping[str, str],
    found: Mapping[tuple[Place, int], int | None],
    exact: Collection[tuple[Place, int]],
    ends: Mapping[Place, LogEnd],
    deadline: float,
) -> dict[tuple[Place, int], str]:
    """Return of which times a log has no record, and why it is no copy by times then.

    `found` has the first offset of each time or later, None where there is none; of those that are `exact` the first
    one in the other log is of that very time. Of others it may be a later one: producers' clocks go back.
    """
    at: dict[tuple[Place, int], set[int]] = {}
    for (place, since_ms), offset in found.items():
        start, last = ends[place].log_start_offset or 0, ends[place].high_watermark - 1
        if since_ms and last >= start:
            # Where nothing is found, or came since, any record tells whose the times are; the last may be a marker.
            at[place, since_ms] = {start, last} if offset is None or offset > last else {offset}
    read = first_at_each(
        cluster,
        properties,
        {(place, offset) for (place, _), offsets in at.items() for offset in offsets},
        ends={TopicPlace(*place): end for place, end in ends.items()},
        isolation_level="read_uncommitted",
        deadline=deadline,
    )
    told: dict[tuple[Place, int], str] = {}
    for (place, since_ms), offset in ((key, offset) for key, offsets in at.items() for offset in offsets):
        reading = read[place, offset]
        if reading.error is not None:
            raise ClusterError(f"what the record of {_named(place)} at {offset} is, is not told: {reading.error}")
        is_exact = (place, since_ms) in exact and found[place, since_ms] == offset
        for record in reading.records:
            if why := _of_another(record, since_ms if is_exact else None):
                told[place, since_ms] = why
    return told


def _of_another(record: Record, since_ms: int | None) -> str | None:
    """Return why a record has not the time of its original, or not this one (None: whichever it is)."""
    if record.is_log_append_time:
        return "its records have the times of their writing here (LogAppendTime)"
    if since_ms is not None and record.timestamp_ms != since_ms:
        return (
            f"no record here is of {since_ms}, the time of the next one there: the first of a later time is of "
            f"{record.timestamp_ms}"
        )
    return None


def _named(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
