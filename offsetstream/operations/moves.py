"""Move groups to another cluster: the timestamps of an export, and the plan of an import, by which groups continue.

Another cluster's copy of a log has the same records in the same order, but other offsets. Take the record at a
committed offset: the group continues in the copy at the first record that has this timestamp or a later one. So it
misses no record. It reads some again: earlier records that have this timestamp or a later one. If the group has read
the complete log, it continues at the first record that has the newest timestamp.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from offsetstream.cluster.answers import CommittedOffset, Place
from offsetstream.cluster.client import require_to_read
from offsetstream.cluster.group_admin import GroupAdmin
from offsetstream.cluster.log_ends import NO_TOPIC, Answers, LogEnd, NoEnd, TopicPartitionKey
from offsetstream.cluster.metadata import MetadataCache
from offsetstream.cluster.reading import Position, ends_of, first_at_each, first_since, rounds_of
from offsetstream.cluster.records import Record
from offsetstream.errors import ClusterError, UsageError
from offsetstream.operations.offset_file import ExportedOffset, RecordTime, by_group, require_place
from offsetstream.operations.plan import OTHER_TIMES, Change, Objection, Plan
from offsetstream.operations.reset import Scope, Target, plan_reset

Offsets: TypeAlias = Mapping[str, Mapping[Place, int]]
_ATTEMPTS = 3


def record_times_of(
    cluster: MetadataCache, properties: Mapping[str, str], offsets: Offsets, timeout: float
) -> tuple[dict[Position, RecordTime], set[Place]]:
    """Return the timestamp for each committed offset, and the partitions that no longer exist.

    Needs READ on the topics. Raises ClusterError if a timestamp cannot be found, and whatever `Connection` raises.
    """
    places = {place for committed in offsets.values() for place in committed}
    require_to_read(cluster, {topic for topic, _ in places})
    ends = ends_of(cluster, places, time.monotonic() + timeout)
    known = {place: end for place in places if isinstance(end := ends.get(TopicPartitionKey(*place)), LogEnd)}
    gone = {place for place in places if ends[TopicPartitionKey(*place)] == NoEnd(None, NO_TOPIC)}
    if unknown := sorted(places - set(known) - gone):
        raise ClusterError(f"The end offset of {_named(unknown[0])} is unknown. Try again when it has a leader")
    keys = {(place, offset) for committed in offsets.values() for place, offset in committed.items() if place in known}
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
) -> dict[Position, RecordTime]:
    """Return the timestamp for each position."""
    found: dict[Position, RecordTime] = {}
    remaining, known = set(positions), dict(ends)
    for _ in range(_ATTEMPTS):
        since, by_newest = _times(cluster, properties, known, remaining, timeout)
        deadline = time.monotonic() + timeout
        first = _first_of_times(cluster, {(place, at) for (place, _), at in since.items()}, deadline)
        # The newest record may be newer than the end offset that we know. Then its timestamp is wrong for this
        # position: try again with the new end offset.
        remaining = {key for key in by_newest if first.get((key[0], since[key]), key[1]) > key[1]}
        for key in since.keys() - remaining:
            place, offset = key
            at = since[key]
            again = offset - first.get((place, at), offset) if at else offset  # the log is empty: all offsets before
            found[key] = RecordTime(at, max(again, 0))
        if not remaining:
            return found
        answers = ends_of(cluster, {place for place, _ in remaining}, deadline)
        known |= {(place.topic, place.partition): end for place, end in answers.items() if isinstance(end, LogEnd)}
    name = _named(next(iter(remaining))[0])
    raise ClusterError(f"Cannot find the timestamp of the newest record of {name}: producers write too fast. Try again")


def _times(
    cluster: MetadataCache,
    properties: Mapping[str, str],
    ends: Mapping[Place, LogEnd],
    wanted: Collection[Position],
    timeout: float,
) -> tuple[dict[Position, int], set[Position]]:
    """Return the timestamp of the record at each position, and the positions that are at the end of their log.

    A position at the end gets the timestamp of the newest record, or 0 if the log has no record.
    """
    found: dict[Position, int] = {}
    unread = {key for key in wanted if key[1] < ends[key[0]].high_watermark}
    answers: Answers = {TopicPartitionKey(*place): end for place, end in ends.items()}
    deadline = time.monotonic() + timeout
    read = first_at_each(
        cluster, properties, unread, ends=answers, isolation_level="read_uncommitted", deadline=deadline
    )
    for (place, offset), reading in read.items():
        record = next(iter(reading.records), None)
        if record is not None and record.timestamp_ms is not None:
            found[place, offset] = record.timestamp_ms
        elif reading.error is not None or record is not None:
            reason = reading.error or "its records have no timestamp"
            raise ClusterError(f"Cannot find the timestamp of the record at {_named(place)}, offset {offset}: {reason}")
    at_end = set(wanted) - set(found)  # no record follows, or only control records
    newest = cluster.record_times({TopicPartitionKey(*place): 0 for place, _ in at_end})
    for place, offset in at_end:
        end = ends[place]
        times = newest.get(TopicPartitionKey(*place))
        if times is None and end.high_watermark > (end.log_start_offset or 0):
            raise ClusterError(
                f"Cannot find the timestamp of the newest record of {_named(place)}: this needs Kafka 3.0 (KIP-734)"
            )
        found[place, offset] = max(times.newest_ms, 0) if times is not None else 0
    return found, at_end


class Renames:
    """The names of topics in the other cluster. The first pattern that matches a complete name decides."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Parse `PATTERN=NAME` texts, with the syntax of `re.sub`. Raises UsageError for an invalid one."""
        self._patterns: list[tuple[re.Pattern[str], str]] = []
        for text in texts:
            pattern, equals, name = text.rpartition("=")
            if not (pattern and equals and name):
                raise UsageError(f"--rename-topic {text} is not PATTERN=NAME. Example: '(.*)=dc1.\\1'")
            try:
                self._patterns.append((re.compile(pattern), name))
            except re.error as error:
                raise UsageError(f"--rename-topic {text}: {error}") from error

    def name(self, topic: str) -> str:
        """Return the topic's name in the other cluster."""
        for pattern, name in self._patterns:
            if found := pattern.fullmatch(topic):
                try:
                    return found.expand(name)
                except (re.error, IndexError) as error:
                    raise UsageError(f"--rename-topic {pattern.pattern}={name}: {error}") from error
        return topic


def renamed(moved: Collection[ExportedOffset], renames: Renames) -> list[ExportedOffset]:
    """Return the offsets with the topics' new names. Raises UsageError if two topics get the same name."""
    found = [replace(each, topic=renames.name(each.topic)) for each in moved]
    before: dict[str, str] = {}
    for old, new in zip(moved, found, strict=True):
        require_place(new.topic, (), "--rename-topic")
        known = before.setdefault(new.topic, old.topic)
        if known != old.topic:
            raise UsageError(f"--rename-topic gives {known} and {old.topic} the same name, {new.topic}")
    return found


def plan_import(
    cluster: MetadataCache,
    admin: GroupAdmin,
    moved: Collection[ExportedOffset],
    timeout: float,
    *,
    same_log: bool,
    properties: Mapping[str, str] | None = None,
) -> Plan:
    """Return the plan that commits the offsets in this cluster.

    With `same_log`, the offsets stay the same. Otherwise the timestamps of their records find them. `properties` are
    client properties. Raises UsageError if an offset has no timestamp, and what `GroupAdmin` and `Connection` raise.
    """
    problems: dict[tuple[Place, int], str] = {}
    if same_log:
        offsets = by_group((each, each.offset) for each in moved)
    else:
        offsets, problems = _by_timestamp(cluster, properties or {}, moved, timeout)
    target = Target("offsets", offsets=offsets)
    plan = plan_reset(cluster, admin, sorted(offsets), Scope({}), target, timeout, kind="import", may_be_new=True)
    timed = {(each.group_id, each.place): each.timed for each in moved if not same_log}
    plan.changes = [replace(each, read_again=_read_again(each, timed.get(_key(each)))) for each in plan.changes]
    for each in plan.changes:
        found = timed.get(_key(each))
        if found is not None and (each.place, found.since_ms) in problems:
            plan.objections.append(Objection(OTHER_TIMES, *_key(each), problems[each.place, found.since_ms]))
    return plan


def _key(change: Change) -> tuple[str, Place]:
    return change.group_id, change.place


def _by_timestamp(
    cluster: MetadataCache, properties: Mapping[str, str], moved: Collection[ExportedOffset], timeout: float
) -> tuple[dict[str, dict[Place, CommittedOffset]], dict[tuple[Place, int], str]]:
    """Return the first offset at each timestamp, and the timestamps that this log does not preserve, with the reason.

    Without a record at that timestamp or later, the group continues at the end of the log.
    """
    deadline = time.monotonic() + timeout
    answers = ends_of(cluster, {each.place for each in moved}, deadline)
    if unknown := next((place for place, end in answers.items() if isinstance(end, NoEnd)), None):
        raise ClusterError(f"The end offset of {unknown.topic}-{unknown.partition} is unknown. Try again")
    ends = {(place.topic, place.partition): end for place, end in answers.items() if isinstance(end, LogEnd)}
    since = {each: _since(each) for each in moved}
    wanted = {(each.place, at) for each, at in since.items() if each.place in ends}
    first = _first_of_times(cluster, wanted, deadline)
    exact = {(each.place, each.timed.since_ms) for each in moved if each.timed and not each.timed.read_again}
    problems = _timestamp_problems(
        cluster, properties, {each: first.get(each) for each in wanted}, exact, ends, deadline
    )
    last = {place: end.high_watermark for place, end in ends.items()}
    found = ((each, first.get((each.place, at), last.get(each.place, 0))) for each, at in since.items())
    return by_group(found), problems


def _since(moved: ExportedOffset) -> int:
    if moved.timed is None:
        raise UsageError("The file has no timestamps of records. Create it with 'offsets export --with-times'")
    return moved.timed.since_ms


def _read_again(change: Change, timed: RecordTime | None) -> int | None:
    """Return how many records the group reads again in this cluster.

    Return None if this log does not have them yet.
    """
    back = max(-(change.distance or 0), 0)
    if timed is None or change.new is None or change.log_end is None:
        return back
    here = change.log_end - (change.new.offset or 0)
    if timed.read_again and not here:
        return None  # the copy lags behind
    return max(min(timed.read_again, here), back)


def _first_of_times(
    cluster: MetadataCache, wanted: Collection[tuple[Place, int]], deadline: float
) -> dict[tuple[Place, int], int]:
    """Return the first offset at each timestamp or later, where one exists. Raises ClusterError if a lookup fails."""
    found: dict[tuple[Place, int], int] = {}
    for round_ in rounds_of(wanted):
        answers = first_since(cluster, {TopicPartitionKey(*place): at for place, at in round_.items()}, deadline)
        for place, first in answers.items():
            if isinstance(first, str):
                raise ClusterError(f"Cannot look up an offset by timestamp in {_named(place)}: {first}")
            if first is not None:
                found[(place.topic, place.partition), round_[place]] = first
    return found


def _timestamp_problems(
    cluster: MetadataCache,
    properties: Mapping[str, str],
    found: Mapping[tuple[Place, int], int | None],
    exact: Collection[tuple[Place, int]],
    ends: Mapping[Place, LogEnd],
    deadline: float,
) -> dict[tuple[Place, int], str]:
    """Return the timestamps that this log does not preserve, each with the reason.

    `found` has the first offset at each timestamp or later, or None. For the timestamps in `exact`, the first such
    record of the original log has exactly this timestamp. For others it may have a later one, because producers'
    clocks can go back.
    """
    at: dict[tuple[Place, int], set[int]] = {}
    for (place, since_ms), offset in found.items():
        start, last = ends[place].log_start_offset or 0, ends[place].high_watermark - 1
        if since_ms and last >= start:
            # Without a match (or with a newer one), check any record for LogAppendTime; the last one may be a marker.
            at[place, since_ms] = {start, last} if offset is None or offset > last else {offset}
    read = first_at_each(
        cluster,
        properties,
        {(place, offset) for (place, _), offsets in at.items() for offset in offsets},
        ends={TopicPartitionKey(*place): end for place, end in ends.items()},
        isolation_level="read_uncommitted",
        deadline=deadline,
    )
    reasons: dict[tuple[Place, int], str] = {}
    for (place, since_ms), offset in ((key, offset) for key, offsets in at.items() for offset in offsets):
        reading = read[place, offset]
        if reading.error is not None:
            raise ClusterError(f"Cannot read the record at {_named(place)}, offset {offset}: {reading.error}")
        is_exact = (place, since_ms) in exact and found[place, since_ms] == offset
        for record in reading.records:
            if reason := _timestamp_problem(record, since_ms if is_exact else None):
                reasons[place, since_ms] = reason
    return reasons


def _timestamp_problem(record: Record, expected_ms: int | None) -> str | None:
    """Return why a record does not have the timestamp of its original (None: any timestamp will do)."""
    if record.is_log_append_time:
        return "this cluster gave the records its own timestamps (LogAppendTime)"
    if expected_ms is not None and record.timestamp_ms != expected_ms:
        return (
            f"no record here has the timestamp {expected_ms} of the next record in the other cluster; "
            f"the next later timestamp is {record.timestamp_ms}"
        )
    return None


def _named(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
