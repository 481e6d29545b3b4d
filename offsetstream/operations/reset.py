"""Plan a reset of committed offsets, and find all objections to it.

Targets are those of `kafka-consumer-groups --reset-offsets`. Like Kafka's tool, move an offset outside the log to the
nearest one inside. Unlike it, also object.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from offsetstream.cluster import log_ends
from offsetstream.cluster.answers import CommittedOffset, Place, omitted, with_offsets
from offsetstream.cluster.client import require_to_read, require_to_see_topics_of_groups
from offsetstream.cluster.group_admin import GroupAdmin, GroupState
from offsetstream.cluster.log_ends import Answers, LogEnd, NoEnd, TopicPartitionKey
from offsetstream.cluster.metadata import MetadataCache
from offsetstream.cluster.reading import ends_of, first_since
from offsetstream.cluster.rights import describe_each
from offsetstream.errors import OffsetstreamError, UnauthorisedError, UsageError, shortened
from offsetstream.operations.offset_file import require_place
from offsetstream.operations.plan import (
    ACTIVE,
    LONG_METADATA,
    NO_GROUP,
    NO_OFFSET,
    NO_TOPIC,
    OPEN,
    OUT_OF_RANGE,
    RECREATED,
    TYPE,
    UNKNOWN_LOG,
    Change,
    Objection,
    Plan,
)

_MAX_SHOWN = 3
_METADATA_LIMIT = "offset.metadata.max.bytes"

Word: TypeAlias = Literal["earliest", "latest", "current", "offset", "shift", "time", "offsets"]
_Times: TypeAlias = Mapping[TopicPartitionKey, int | str | None]


@dataclass(frozen=True)
class Scope:
    """The partitions of a reset: those of `topics` (None: all partitions of a topic).

    With `all_topics`, also each partition for which the group has an offset.
    """

    topics: Mapping[str, Collection[int] | None]
    all_topics: bool = False


EVERYTHING = Scope({}, all_topics=True)


@dataclass(frozen=True)
class Target:
    """A reset target.

    `value` is an offset (word "offset"), a number of offsets ("shift") or milliseconds since 1970 ("time"). `offsets`
    has the new offsets by group (word "offsets").
    """

    word: Word
    value: int = 0
    offsets: Mapping[str, Mapping[Place, CommittedOffset]] = field(default_factory=dict)


def parse_topics(specs: Sequence[str]) -> dict[str, list[int] | None]:
    """Parse TOPIC and TOPIC:0,1, like Kafka's tool. Raises UsageError for anything else."""
    topics: dict[str, list[int] | None] = {}
    for spec in specs:
        topic, colon, numbers = spec.partition(":")
        if not topic or (colon and not all(each.isascii() and each.isdecimal() for each in numbers.split(","))):
            raise UsageError(f"--topic {spec} is not a topic. Use TOPIC, or TOPIC:0,1 for some of its partitions")
        known = topics.get(topic, [])
        partitions = [int(each) for each in numbers.split(",")] if colon else None
        require_place(topic, partitions or (), f"--topic {spec}")
        topics[topic] = None if known is None or partitions is None else [*known, *partitions]
    return topics


def plan_reset(
    cluster: MetadataCache,
    admin: GroupAdmin,
    group_ids: Collection[str],
    scope: Scope,
    target: Target,
    timeout: float,
    *,
    kind: str = "reset",
    may_be_new: bool = False,
) -> Plan:
    """Return the plan that resets the groups' offsets.

    Waits up to `timeout` seconds for partitions without a leader. With `may_be_new`, a missing group is no objection.
    Raises whatever `GroupAdmin` and `Connection` raise.
    """
    if target.word == "offsets":
        require_some(scope, {place for offsets in target.offsets.values() for place in offsets})
    require_to_see_topics_of_groups(cluster, () if scope.all_topics else scope.topics or _topics_of(target))
    states = {group_id: admin.standing(group_id) for group_id in group_ids}
    answers = {group_id: admin.offsets(group_id) for group_id in group_ids}
    offsets = {group_id: with_offsets(answer) for group_id, answer in answers.items()}
    topic_places = _places_of_topics(cluster, scope.topics)
    places = {group_id: _in_scope(target, group_id, scope, topic_places, offsets[group_id]) for group_id in group_ids}
    all_places = {place for group_places in places.values() for place in group_places}
    require_to_read(cluster, {topic for topic, _ in all_places})
    deadline = time.monotonic() + timeout
    ends = ends_of(cluster, all_places, deadline)
    plan, times = Plan(kind), _times(cluster, target, ends, deadline)
    for group_id in sorted(places):
        committed = offsets[group_id]
        plan.objections += objections_to_group(group_id, states[group_id], committed, may_be_new=may_be_new)
        plan.objections += open_transactions(admin, group_id, places[group_id])
        plan.notes += _unchanged(target, group_id, set(committed) - places[group_id], topic_places)
        if scope.all_topics:
            plan.notes += _without_offset(group_id, set(answers[group_id]) - set(committed) - places[group_id])
        for each in _changes(target, group_id, places[group_id], committed, ends, times):
            (plan.objections if isinstance(each, Objection) else plan.changes).append(each)  # type: ignore[arg-type]
    plan.objections += list(long_metadata(cluster, plan.changes))
    return plan


def require_some(scope: Scope, given: Collection[Place]) -> None:
    """Raise OffsetstreamError if a topic of the scope has none of the given offsets."""
    for topic, numbers in scope.topics.items():
        known = {number for other, number in given if other == topic}
        missing = [f"{topic}-{number}" for number in sorted(set(numbers or ()) - known)] if known else [topic]
        if missing:
            available = ", ".join(sorted({topic for topic, _ in given})[:_MAX_SHOWN]) or "no topic"
            raise OffsetstreamError(f"There is no offset for {missing[0]}, only for {available}. Correct --topic")


def objections_to_group(
    group_id: str, state: GroupState, committed: Collection[Place], *, may_be_new: bool = False
) -> Iterator[Objection]:
    """Yield the objections to any change of the group's offsets."""
    if state.group_type is None and not may_be_new and not committed:
        yield Objection(NO_GROUP, group_id, None, "the group does not exist: a commit would create it")
    if state.group_type in {"Share", "Streams"}:
        tool = f"kafka-{state.group_type.lower()}-groups"
        yield Objection(TYPE, group_id, None, f"it is a {state.group_type} group: reset it with {tool}")
    elif state.state not in {"Empty", "Dead"}:
        yield Objection(
            ACTIVE, group_id, None, f"it is {state.state} with {state.members} members: stop its consumers first"
        )


def open_transactions(admin: GroupAdmin, group_id: str, places: Collection[Place]) -> Iterator[Objection]:
    """Yield an objection for each partition for which an open transaction has a pending offset."""
    for place in sorted(admin.unstable(group_id, places)):
        yield Objection(
            OPEN,
            group_id,
            place,
            "an open transaction has a pending offset for it, which would replace a new one: "
            "'partitions --blocked' shows the transaction",
        )


def recreation_objections(
    changes: Collection[Change], former_ids: Mapping[tuple[str, Place], Collection[str]]
) -> Iterator[Objection]:
    """Yield an objection for each change whose topic was recreated.

    `former_ids` has the topic ids at the time of the offset, by group and partition.
    """
    for change in changes:
        if is_another(change.topic_id, former_ids.get((change.group_id, change.place), ())):
            yield Objection(
                RECREATED,
                change.group_id,
                change.place,
                "the topic was recreated since then: its offsets now belong to other records",
            )


def is_another(topic_id: str | None, before: Collection[str]) -> bool:
    """Return whether a topic's id is known and differs from all its known former ids."""
    return topic_id is not None and bool(before) and topic_id not in before


def without_epochs(changes: Collection[Change], objections: Collection[Objection]) -> list[Change]:
    """Return the changes, without leader epochs where the topic was recreated: they mean nothing in the new topic."""
    with_new_topic = {(each.group_id, each.place) for each in objections if each.kind == RECREATED}
    return [
        replace(each, new=each.new and replace(each.new, leader_epoch=None))
        if (each.group_id, each.place) in with_new_topic
        else each
        for each in changes
    ]


def long_metadata(cluster: MetadataCache, changes: Collection[Change]) -> Iterator[Objection]:
    """Yield an objection for each metadata text that is longer than the brokers allow.

    Yields none if we may not read the brokers' settings. Then the commit fails instead.
    """
    with_text = [change for change in changes if change.new and change.new.metadata]
    if not with_text:
        return
    try:
        limit = int(cluster.broker_settings().get(_METADATA_LIMIT) or 0)
    except UnauthorisedError:
        return
    for change in with_text:
        length = len((change.new or CommittedOffset(0)).metadata.encode())
        if limit and length > limit:
            reason = f"its metadata has {length} bytes, and the brokers allow {limit} ({_METADATA_LIMIT})"
            yield Objection(LONG_METADATA, change.group_id, change.place, reason)


def _times(cluster: MetadataCache, target: Target, ends: Answers, deadline: float) -> _Times:
    """Return the first offset at the target's time or later in each log, if there is one. One lookup for all groups."""
    known = [place for place, end in ends.items() if isinstance(end, LogEnd)] if target.word == "time" else []
    return first_since(cluster, dict.fromkeys(known, target.value), deadline) if known else {}


def _changes(
    target: Target,
    group_id: str,
    places: Collection[Place],
    present: Mapping[Place, CommittedOffset],
    ends: Answers,
    since: _Times,
) -> Iterator[Change | Objection]:
    """Yield the change of each partition of a group, and the objections to it.

    `since` has the first offset at the target's time or later.
    """
    for place in sorted(places):
        before, end = present.get(place), ends[TopicPartitionKey(*place)]
        if isinstance(end, NoEnd):
            yield _without_log(group_id, place, end.error)
            continue
        requested = _requested_offset(target, group_id, place, before, end, since.get(TopicPartitionKey(*place)))
        if not isinstance(requested, CommittedOffset):
            kind, reason = requested
            yield Objection(kind, group_id, place, reason)
            continue
        # Like Kafka's tool, keep the current offset even outside the log.
        new = requested if target.word == "current" else in_log(requested, end)
        if new is not requested:
            yield Objection(OUT_OF_RANGE, group_id, place, _out_of_range(requested, end))
        yield Change(group_id, *place, before, new, end.log_start_offset, end.high_watermark, end.topic_id)


def in_log(requested: CommittedOffset, end: LogEnd) -> CommittedOffset:
    """Return the requested offset, or the nearest one in the log."""
    offset = requested.offset or 0
    nearest = min(max(offset, end.log_start_offset or 0), end.high_watermark)
    return requested if offset == nearest else CommittedOffset(nearest)


def _requested_offset(
    target: Target,
    group_id: str,
    place: Place,
    present: CommittedOffset | None,
    end: LogEnd,
    since: int | str | None,
) -> CommittedOffset | tuple[str, str]:
    """Return the requested offset of a partition, or the kind and text of an objection."""
    if isinstance(since, str):
        return UNKNOWN_LOG, f"{since}: its leader did not return the first offset at that time"
    if target.word == "shift" and present is None:
        return NO_OFFSET, "the group has no committed offset to shift"
    if target.word == "offsets":
        return target.offsets[group_id][place]
    if target.word == "current" and present is not None:
        return present
    last = end.high_watermark
    offsets = {
        "earliest": end.log_start_offset or 0,
        "latest": last,
        "current": last,
        "offset": target.value,
        "shift": ((present and present.offset) or 0) + target.value,
        "time": last if since is None else since,
    }
    return CommittedOffset(offsets[target.word])


def _without_log(group_id: str, place: Place, error: str) -> Objection:
    if error == log_ends.NO_TOPIC:
        return Objection(NO_TOPIC, group_id, place, f"{error}: the partition does not exist (any more)")
    reason = "it has no leader" if error == log_ends.NO_LEADER else "its end offset is unknown"
    return Objection(UNKNOWN_LOG, group_id, place, f"{error}: {reason}")


def _out_of_range(requested: CommittedOffset, end: LogEnd) -> str:
    return (
        f"offset {requested.offset} is outside the log ({end.log_start_offset or 0} to {end.high_watermark}): "
        f"it would become {in_log(requested, end).offset}"
    )


def _unchanged(target: Target, group_id: str, others: set[Place], topic_places: set[Place]) -> Iterator[str]:
    """Yield a note if the group has offsets for which there is no target: they stay unchanged."""
    others &= topic_places or others
    if target.word == "offsets" and others:
        shown = shortened([f"{topic}-{number}" for topic, number in sorted(others)])
        yield f"group '{group_id}' has other offsets too, for {shown}: they have no target and stay unchanged"


def _without_offset(group_id: str, places: set[Place]) -> Iterator[str]:
    for place in sorted(places):
        yield f"{omitted(group_id, place)}: name the topic with --topic to set one"


def _topics_of(target: Target) -> set[str]:
    return {topic for offsets in target.offsets.values() for topic, _ in offsets}


def _places_of_topics(cluster: MetadataCache, topics: Mapping[str, Collection[int] | None]) -> set[Place]:
    """Return the partitions of the topics. A missing topic gets partition 0, for which an objection follows."""
    if refused := cluster.refresh(list(topics)):
        raise cluster.lacks(describe_each("topic", refused))
    places: set[Place] = set()
    for topic, numbers in topics.items():
        known = cluster.topic(topic)
        all_numbers = known.partitions if known else [0]
        places |= {(topic, number) for number in (all_numbers if numbers is None else numbers)}
    return places


def _in_scope(
    target: Target, group_id: str, scope: Scope, topic_places: set[Place], committed: Mapping[Place, CommittedOffset]
) -> set[Place]:
    if target.word != "offsets":
        return topic_places | (set(committed) if scope.all_topics else set())
    given = set(target.offsets.get(group_id, ()))
    return given & topic_places if scope.topics else given
