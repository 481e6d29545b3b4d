"""Read the next records at offsets of live partitions, or find why there are none: range, leader or end of the log.

`Peek` reads some records for a look. `exact_lags` reads the record at each committed offset: its timestamp gives the
time lag.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from offsetstream.cluster.answers import Place
from offsetstream.cluster.client import require_to_read
from offsetstream.cluster.connection import FIRST_PAUSE, LONGEST_PAUSE
from offsetstream.cluster.log_ends import NO_LEADER, NO_TOPIC, Answers, LogEnd, NoEnd, TopicPartitionKey
from offsetstream.cluster.metadata import STALE, MetadataCache
from offsetstream.cluster.records import OUT_OF_RANGE, IsolationLevel, Record, read_at

_TEMPORARY = STALE - {NO_TOPIC, "UNKNOWN_TOPIC_ID"}  # a deleted topic is permanent
Position: TypeAlias = tuple[Place, int]  # a partition and an offset
_BACKOFF_FACTOR = 8  # read from further back if compaction and transactions left too few records
_MAX_OFFSETS_BACK = 10_000  # or the number of requested records, if larger


@dataclass(frozen=True)
class Reading:
    """The records from `offset` on. If there are no more, the log ends there, or one of these fields has the reason.

    `is_blocked`: an open transaction blocks the next records. `error`: Kafka's name of an error. `errors` counts the
    errors that came before the answer.
    """

    offset: int
    end: LogEnd | None
    records: tuple[Record, ...] = ()
    is_blocked: bool = False
    error: str | None = None
    errors: int = 0


@dataclass(frozen=True)
class ExactLag:
    """A partition of a group, and the first record at its committed offset or later (at most one)."""

    group_id: str
    topic: str
    partition: int
    reading: Reading


class Peek:
    """Reads records of live partitions. Each request waits up to `timeout` seconds.

    Every request raises what `Connection` raises.
    """

    def __init__(
        self, bootstrap_server: str, properties: Mapping[str, str], isolation_level: IsolationLevel, timeout: float
    ) -> None:
        self.cluster = MetadataCache(bootstrap_server, properties)
        self._properties = properties
        self._isolation = isolation_level
        self._timeout = timeout

    def read(self, starts: Mapping[Place, int], at_most: int) -> dict[Place, Reading]:
        """Return up to `at_most` records of each partition, starting at an offset."""
        return self._read(starts, at_most, ends_of(self.cluster, starts), self._deadline())

    def since(self, place: Place, since_ms: int, at_most: int) -> Reading:
        """Return up to `at_most` records, starting at the first at a time (milliseconds since 1970) or later."""
        deadline = self._deadline()
        ends = ends_of(self.cluster, [place], deadline)
        end = ends.get(TopicPartitionKey(*place))
        if not isinstance(end, LogEnd):
            return self._read({place: 0}, at_most, ends, deadline)[place]
        first = self.cluster.first_since(TopicPartitionKey(*place), since_ms)
        if isinstance(first, str):
            return Reading(end.high_watermark, end, error=first)
        if first is None:
            return Reading(end.high_watermark, end)
        return self._read({place: first}, at_most, ends, deadline)[place]

    def latest(self, place: Place, at_most: int) -> Reading:
        """Return the last records of a partition, from at most the last 10,000 offsets."""
        deadline = self._deadline()
        ends = ends_of(self.cluster, [place], deadline)
        end = ends.get(TopicPartitionKey(*place))
        if not isinstance(end, LogEnd):
            return self._read({place: 0}, at_most, ends, deadline)[place]
        last = end.last_stable_offset if self._isolation == "read_committed" else end.high_watermark
        first = end.log_start_offset or 0
        for back in _distances(at_most):
            start = max(last - back, first)
            reading = self._read({place: start}, back, ends, deadline)[place]
            if len(reading.records) >= at_most or start == first or reading.error is not None:
                break
        return replace(reading, records=reading.records[-at_most:])

    def _deadline(self) -> float:
        return time.monotonic() + self._timeout

    def _read(self, starts: Mapping[Place, int], at_most: int, ends: Answers, deadline: float) -> dict[Place, Reading]:
        return read_from(
            self.cluster,
            self._properties,
            starts,
            at_most,
            ends=ends,
            isolation_level=self._isolation,
            deadline=deadline,
        )


def _distances(at_most: int) -> Iterable[int]:
    furthest, back = max(_MAX_OFFSETS_BACK, at_most), at_most
    while back < furthest:
        yield back
        back *= _BACKOFF_FACTOR
    yield furthest


def exact_lags(
    cluster: MetadataCache,
    properties: Mapping[str, str],
    committed: Mapping[str, Mapping[Place, int]],
    *,
    isolation_level: IsolationLevel,
    timeout: float,
) -> list[ExactLag]:
    """Return the next record of each group and partition, within `timeout` seconds for all.

    Fetches each pair of a partition and an offset once, even if several groups have it. Needs READ on the topics.
    Raises what `Connection` raises.
    """
    deadline = time.monotonic() + timeout
    places = {place for offsets in committed.values() for place in offsets}
    require_to_read(cluster, {topic for topic, _ in places})
    ends = ends_of(cluster, places)
    wanted = {position for offsets in committed.values() for position in offsets.items()}
    found = first_at_each(cluster, properties, wanted, ends=ends, isolation_level=isolation_level, deadline=deadline)
    return [
        ExactLag(group_id, *place, found[place, offset])
        for group_id, offsets in committed.items()
        for place, offset in offsets.items()
    ]


def ends_of(cluster: MetadataCache, places: Collection[Place], deadline: float | None = None) -> Answers:
    """Return the start and end offsets of the partitions, or the errors.

    Retries until the deadline (a `time.monotonic`; None: no retry) while a leader moves or is missing.
    """
    found: Answers = {}
    remaining = set(places)
    for _ in _attempts(deadline):
        numbers: dict[str, set[int]] = {}
        for topic, number in remaining:
            numbers.setdefault(topic, set()).add(number)
        found |= (answers := cluster.ends(numbers, {}))
        remaining = {place for place, end in answers.items() if isinstance(end, NoEnd) and end.error in _TEMPORARY}
        if not remaining:
            break
    return found


def first_since(
    cluster: MetadataCache, since_ms: Mapping[TopicPartitionKey, int], deadline: float
) -> dict[TopicPartitionKey, int | str | None]:
    """Return the first offset at each partition's time or later (None: there is none), or a text with the error.

    Retries until the deadline (a `time.monotonic`) while a leader moves or is missing.
    """
    found: dict[TopicPartitionKey, int | str | None] = {}
    remaining = dict(since_ms)
    for _ in _attempts(deadline):
        found |= (answers := cluster.first_since_each(remaining))
        remaining = {place: since_ms[place] for place, first in answers.items() if first in _TEMPORARY}
        if not remaining:
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
    """Return up to `at_most` records of each partition, starting at an offset. `ends` is the result of `ends_of`.

    Fetches only from partitions that have records there. Retries with pauses until the deadline (a `time.monotonic`)
    while a leader moves or is missing.
    """
    found: dict[Place, Reading] = {}
    remaining, known = dict(starts), ends
    for _ in _attempts(deadline):
        found |= _read_once(cluster, properties, remaining, at_most, known, isolation_level, deadline)
        remaining = {place: offset for place, offset in starts.items() if found[place].error in _TEMPORARY}
        if not remaining:
            break
        known = ends_of(cluster, remaining)
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
    """Return the next record at each position. Otherwise like `read_from`."""
    found: dict[Position, Reading] = {}
    for starts in rounds_of(wanted):
        answers = read_from(
            cluster, properties, starts, 1, ends=ends, isolation_level=isolation_level, deadline=deadline
        )
        found |= {(place, reading.offset): reading for place, reading in answers.items()}
    return found


def rounds_of(wanted: Collection[Position]) -> Iterator[dict[Place, int]]:
    """Yield all pairs in rounds that have each partition only once, since a request can have it only once."""
    remaining = set(wanted)
    while remaining:
        round_ = dict(remaining)
        yield round_
        remaining -= set(round_.items())


def _attempts(deadline: float | None) -> Iterator[None]:
    """Yield once, and again after growing pauses until the deadline."""
    pause = FIRST_PAUSE
    yield
    while deadline is not None and time.monotonic() + pause < deadline:
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
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
        place: _without_reading(offset, ends[TopicPartitionKey(*place)], isolation_level)
        for place, offset in starts.items()
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
        end = ends[TopicPartitionKey(*place)]
        last = end if isinstance(end, LogEnd) else None
        reading = Reading(to_read[place], last, tuple(each.records), error=each.error, errors=each.errors)
        if each.error is not None:
            found[place] = _with_reason(cluster, place, reading, each.error)
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


def _with_reason(cluster: MetadataCache, place: Place, reading: Reading, error: str) -> Reading:
    """Return the reading with the current log range or leader state, which explains the error."""
    if error == OUT_OF_RANGE:  # the start of the log has moved meanwhile
        end = ends_of(cluster, [place]).get(TopicPartitionKey(*place))
        return replace(reading, end=end) if isinstance(end, LogEnd) else reading
    if not cluster.told(place[0], error):
        return reading
    partition = cluster.partition(*place)
    if partition is None:
        return replace(reading, error=NO_TOPIC)
    return replace(reading, error=NO_LEADER) if partition.leader is None else reading
