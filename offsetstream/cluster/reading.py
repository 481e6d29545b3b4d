"""What would be read next at offsets of live partitions, and why nothing: the log's range, its leader, its end."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from offsetstream.cluster.committed import Place
from offsetstream.cluster.log_ends import NO_LEADER, NO_TOPIC, Answers, LogEnd, NoEnd, TopicPlace
from offsetstream.cluster.metadata import STALE, MetadataCache
from offsetstream.cluster.records_at import OUT_OF_RANGE, IsolationLevel, Record, read_at

_MOVING = STALE - {NO_TOPIC, "UNKNOWN_TOPIC_ID"}  # which pass, where a topic that is gone stays so
Position: TypeAlias = tuple[Place, int]  # a partition and an offset of it
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0  # seconds


@dataclass(frozen=True)
class Reading:
    """What is read from `offset` on, and why there is no more of it: the log ends there, unless one of these says else.

    `is_blocked`: what comes next belongs to an open transaction, or is behind one; `error`: by Kafka's name. `errors`
    counts those that were heard before an answer came.
    """

    offset: int
    end: LogEnd | None
    records: tuple[Record, ...] = ()
    is_blocked: bool = False
    error: str | None = None
    errors: int = 0


def ends_of(cluster: MetadataCache, places: Collection[Place], deadline: float | None = None) -> Answers:
    """Return where the logs of the partitions begin and end, or why that is not known.

    Leaders that move or are away are asked again until the deadline, of `time.monotonic`, if there is one.
    """
    found: Answers = {}
    left = set(places)
    for _ in _attempts(deadline):
        wanted: dict[str, set[int]] = {}
        for topic, number in left:
            wanted.setdefault(topic, set()).add(number)
        found |= (some := cluster.ends(wanted, {}))
        left = {place for place, end in some.items() if isinstance(end, NoEnd) and end.error in _MOVING}
        if not left:
            break
    return found


def first_since(
    cluster: MetadataCache, since_ms: Mapping[TopicPlace, int], deadline: float
) -> dict[TopicPlace, int | str | None]:
    """Return the first offset of each partition's time or later, None where none is; a text is why it is not told.

    Leaders that move or are away are asked again until the deadline, of `time.monotonic`.
    """
    found: dict[TopicPlace, int | str | None] = {}
    left = dict(since_ms)
    for _ in _attempts(deadline):
        found |= (some := cluster.first_since_each(left))
        left = {place: since_ms[place] for place, first in some.items() if first in _MOVING}
        if not left:
            break
    return found


def read_from(
    cluster: MetadataCache,
    properties: Mapping[str, str],
    starts: Mapping[Place, int],
    at_most: int,
    *,
    ends: Answers,
    isolation_level: IsolationLevel,
    deadline: float,
) -> dict[Place, Reading]:
    """Return what would be read of each partition from an offset on, `at_most` records; `ends` are `ends_of` them.

    Only partitions that have something to read are fetched from. Those whose leader moves or is away are asked again,
    with pauses, until the deadline, of `time.monotonic`.
    """
    found: dict[Place, Reading] = {}
    left, known = dict(starts), ends
    for _ in _attempts(deadline):
        found |= _read_once(cluster, properties, left, at_most, known, isolation_level, deadline)
        left = {place: offset for place, offset in starts.items() if found[place].error in _MOVING}
        if not left:
            break
        known = ends_of(cluster, left)
    return {place: found[place] for place in starts}


def first_at_each(
    cluster: MetadataCache,
    properties: Mapping[str, str],
    wanted: Collection[Position],
    *,
    ends: Answers,
    isolation_level: IsolationLevel,
    deadline: float,
) -> dict[Position, Reading]:
    """Return what would be read at each position, one record at most; else as `read_from`."""
    found: dict[Position, Reading] = {}
    for starts in once_at_a_time(wanted):
        some = read_from(cluster, properties, starts, 1, ends=ends, isolation_level=isolation_level, deadline=deadline)
        found |= {(place, reading.offset): reading for place, reading in some.items()}
    return found


def once_at_a_time(wanted: Collection[Position]) -> Iterator[dict[Place, int]]:
    """Yield each pair of a partition and a number once, and a partition once at a time, as clients ask for it."""
    left = set(wanted)
    while left:
        some = dict(left)
        yield some
        left -= set(some.items())


def _attempts(deadline: float | None) -> Iterator[None]:
    """Yield once, and again after pauses that get longer, until the deadline."""
    pause = _FIRST_PAUSE
    yield
    while deadline is not None and time.monotonic() + pause < deadline:
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
        yield


def _read_once(
    cluster: MetadataCache,
    properties: Mapping[str, str],
    starts: Mapping[Place, int],
    at_most: int,
    ends: Answers,
    isolation_level: IsolationLevel,
    deadline: float,
) -> dict[Place, Reading]:
    known = {
        place: _without_reading(offset, ends[TopicPlace(*place)], isolation_level) for place, offset in starts.items()
    }
    to_read = {place: starts[place] for place, reading in known.items() if reading is None}
    found = {place: reading for place, reading in known.items() if reading is not None}
    if not to_read:
        return found
    fetched = read_at(
        cluster.bootstrap_server,
        properties,
        to_read,
        at_most,
        isolation_level=isolation_level,
        timeout=max(deadline - time.monotonic(), 0.0),
    )
    for place, each in fetched.items():
        end = ends[TopicPlace(*place)]
        last = end if isinstance(end, LogEnd) else None
        reading = Reading(to_read[place], last, tuple(each.records), error=each.error, errors=each.errors)
        if each.error is not None:
            found[place] = _explained(cluster, place, reading, each.error)
        elif each.is_at_end and last is not None and isolation_level == "read_committed":
            found[place] = replace(reading, is_blocked=last.last_stable_offset < last.high_watermark)
        else:
            found[place] = reading
    return found


def _without_reading(offset: int, end: LogEnd | NoEnd, isolation_level: IsolationLevel) -> Reading | None:
    if not isinstance(end, LogEnd):
        return Reading(offset, None, error=end.error)
    if not (end.log_start_offset or 0) <= offset <= end.high_watermark:
        return Reading(offset, end, error=OUT_OF_RANGE)
    if offset == end.high_watermark:
        return Reading(offset, end)
    if isolation_level == "read_committed" and offset >= end.last_stable_offset:
        return Reading(offset, end, is_blocked=True)
    return None


def _explained(cluster: MetadataCache, place: Place, reading: Reading, error: str) -> Reading:
    """Say what the log of a partition, or its leader, is now that an error came of it."""
    if error == OUT_OF_RANGE:  # its start has moved meanwhile
        end = ends_of(cluster, [place]).get(TopicPlace(*place))
        return replace(reading, end=end) if isinstance(end, LogEnd) else reading
    if not cluster.told(place[0], error):
        return reading
    partition = cluster.partition(*place)
    if partition is None:
        return replace(reading, error=NO_TOPIC)
    return replace(reading, error=NO_LEADER) if partition.leader is None else reading
