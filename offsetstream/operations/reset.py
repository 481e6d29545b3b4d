"""The plan of a reset: what becomes of which partitions, and all that is to be said against it."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from offsetstream.cluster.committed import CommittedOffset, Place, omitted, with_offsets
from offsetstream.cluster.group_admin import GroupAdmin, Standing
from offsetstream.cluster.log_ends import Answers, LogEnd, TopicPlace
from offsetstream.cluster.metadata import MetadataCache
from offsetstream.cluster.permissions import require_to_read, require_to_see_topics_of_groups
from offsetstream.cluster.reading import ends_of, first_since
from offsetstream.cluster.rights import describe_each
from offsetstream.errors import OffsetstreamError, UnauthorisedError, UsageError
from offsetstream.operations.offset_file import require_place
from offsetstream.operations.plan import (
    ACTIVE,
    LONG_METADATA,
    NO_GROUP,
    OPEN,
    RECREATED,
    TYPE,
    Change,
    Objection,
    Plan,
)
from offsetstream.operations.targets import Target, changes_of

_SHOWN = 3
_METADATA_LIMIT = "offset.metadata.max.bytes"


@dataclass(frozen=True)
class Scope:
    """Which partitions: of these topics (None: all of a topic), and of `all_topics` those that have an offset."""

    topics: Mapping[str, Collection[int] | None]
    all_topics: bool = False


EVERYTHING = Scope({}, all_topics=True)


def parse_topics(specs: Sequence[str]) -> dict[str, list[int] | None]:
    """Read TOPIC and TOPIC:0,1, as Kafka's tool takes them; UsageError otherwise."""
    found: dict[str, list[int] | None] = {}
    for spec in specs:
        topic, colon, numbers = spec.partition(":")
        if not topic or (colon and not all(each.isascii() and each.isdecimal() for each in numbers.split(","))):
            raise UsageError(f"--topic {spec} is no topic: give TOPIC, or TOPIC:0,1 for some of its partitions")
        known = found.get(topic, [])
        of_spec = [int(each) for each in numbers.split(",")] if colon else None
        require_place(topic, of_spec or (), f"--topic {spec}")
        found[topic] = None if known is None or of_spec is None else [*known, *of_spec]
    return found


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
    """Return what would become of the groups; leaders that are away are asked again for `timeout` seconds.

    `may_be_new`: that a group is not there yet is no objection.

    Raises what `GroupAdmin` and `Connection` do.
    """
    if target.word == "offsets":
        require_some(scope, {place for offsets in target.offsets.values() for place in offsets})
    require_to_see_topics_of_groups(cluster, () if scope.all_topics else scope.topics or _topics_of(target))
    standings = {group_id: admin.standing(group_id) for group_id in group_ids}
    told = {group_id: admin.offsets(group_id) for group_id in group_ids}
    offsets = {group_id: with_offsets(of_group) for group_id, of_group in told.items()}
    of_topics = _places(cluster, scope.topics)
    places = {group_id: _of_group(target, group_id, scope, of_topics, offsets[group_id]) for group_id in group_ids}
    all_places = {place for some in places.values() for place in some}
    require_to_read(cluster, {topic for topic, _ in all_places})
    deadline = time.monotonic() + timeout
    ends = ends_of(cluster, all_places, deadline)
    plan, times = Plan(kind), _times(cluster, target, ends, deadline)
    for group_id in sorted(places):
        committed = offsets[group_id]
        plan.objections += objections_to_group(group_id, standings[group_id], committed, may_be_new=may_be_new)
        plan.objections += open_transactions(admin, group_id, places[group_id])
        plan.notes += _left_alone(target, group_id, set(committed) - places[group_id], of_topics)
        if scope.all_topics:
            plan.notes += _omitted(group_id, set(told[group_id]) - set(committed) - places[group_id])
        for each in changes_of(target, group_id, places[group_id], committed, ends, times):
            (plan.objections if isinstance(each, Objection) else plan.changes).append(each)  # type: ignore[arg-type]
    plan.objections += list(long_metadata(cluster, plan.changes))
    return plan


def require_some(scope: Scope, given: Collection[Place]) -> None:
    """Raise OffsetstreamError where one of the topics that are named has no offset among those that are given."""
    for topic, numbers in scope.topics.items():
        known = {number for other, number in given if other == topic}
        missing = [f"{topic}-{number}" for number in sorted(set(numbers or ()) - known)] if known else [topic]
        if missing:
            there = ", ".join(sorted({topic for topic, _ in given})[:_SHOWN]) or "nothing"
            raise OffsetstreamError(f"there is no offset of {missing[0]} to go to, but of {there}: correct --topic")


def objections_to_group(
    group_id: str, standing: Standing, committed: Collection[Place], *, may_be_new: bool = False
) -> Iterator[Objection]:
    """Yield what is to be said against any change of a group's offsets."""
    if standing.group_type is None and not may_be_new and not committed:
        yield Objection(NO_GROUP, group_id, None, "there is no such group: a commit would make it")
    if standing.group_type in {"Share", "Streams"}:
        tool = f"kafka-{standing.group_type.lower()}-groups"
        yield Objection(TYPE, group_id, None, f"it is a {standing.group_type} group: {tool} resets it")
    elif standing.state not in {"Empty", "Dead"}:
        yield Objection(
            ACTIVE, group_id, None, f"it is {standing.state} with {standing.members} members: stop its consumers first"
        )


def open_transactions(admin: GroupAdmin, group_id: str, places: Collection[Place]) -> Iterator[Objection]:
    """Yield the partitions to which an open transaction is to commit."""
    for place in sorted(admin.unstable(group_id, places)):
        yield Objection(
            OPEN,
            group_id,
            place,
            "an open transaction is to commit to it, and replaces what is committed now: 'partitions --blocked' "
            "names it",
        )


def recreated(changes: Collection[Change], then: Mapping[tuple[str, Place], Collection[str]]) -> Iterator[Objection]:
    """Yield where a topic is another one than it was; `then` has the ids that it had, by group and partition."""
    for change in changes:
        if is_another(change.topic_id, then.get((change.group_id, change.place), ())):
            yield Objection(
                RECREATED,
                change.group_id,
                change.place,
                "the topic was recreated since: its offsets are of other records",
            )


def is_another(topic_id: str | None, before: Collection[str]) -> bool:
    """Tell whether a topic's id is none of those that it had, as far as both are known."""
    return topic_id is not None and bool(before) and topic_id not in before


def without_epochs(changes: Collection[Change], objections: Collection[Objection]) -> list[Change]:
    """Return the changes; the leader epochs of a topic that was recreated mean nothing in the new one."""
    of_another = {(each.group_id, each.place) for each in objections if each.kind == RECREATED}
    return [
        replace(each, new=each.new and replace(each.new, leader_epoch=None))
        if (each.group_id, each.place) in of_another
        else each
        for each in changes
    ]


def long_metadata(cluster: MetadataCache, changes: Collection[Change]) -> Iterator[Objection]:
    """Yield where metadata is longer than the brokers take it; who may not see their settings hears it from them."""
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
            told = f"its metadata has {length} bytes, and the brokers take {limit} ({_METADATA_LIMIT})"
            yield Objection(LONG_METADATA, change.group_id, change.place, told)


def _times(
    cluster: MetadataCache, target: Target, ends: Answers, deadline: float
) -> dict[TopicPlace, int | str | None]:
    """Return the first offset of the target's time in each log, if it has one: asked once for all groups."""
    known = [place for place, end in ends.items() if isinstance(end, LogEnd)] if target.word == "time" else []
    return first_since(cluster, dict.fromkeys(known, target.value), deadline) if known else {}


def _left_alone(target: Target, group_id: str, others: set[Place], of_topics: set[Place]) -> Iterator[str]:
    """Yield that a group has offsets of which there are none to go to: it reads on there."""
    others &= of_topics or others
    if target.word == "offsets" and others:
        shown = ", ".join(f"{topic}-{number}" for topic, number in sorted(others)[:_SHOWN])
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        yield f"group '{group_id}' has offsets of {shown}{more} now, with none to go to: they stay as they are"


def _omitted(group_id: str, places: set[Place]) -> Iterator[str]:
    for place in sorted(places):
        yield f"{omitted(group_id, place)}: name it by --topic to set one"


def _topics_of(target: Target) -> set[str]:
    return {topic for offsets in target.offsets.values() for topic, _ in offsets}


def _places(cluster: MetadataCache, topics: Mapping[str, Collection[int] | None]) -> set[Place]:
    """Return the partitions of the topics; of one that is not there the first, of which that is said."""
    if refused := cluster.refresh(list(topics)):
        raise cluster.lacks(describe_each("topic", refused))
    found: set[Place] = set()
    for topic, numbers in topics.items():
        known = cluster.topic(topic)
        all_of_it = known.partitions if known else [0]
        found |= {(topic, number) for number in (all_of_it if numbers is None else numbers)}
    return found


def _of_group(
    target: Target, group_id: str, scope: Scope, of_topics: set[Place], committed: Mapping[Place, CommittedOffset]
) -> set[Place]:
    if target.word != "offsets":
        return of_topics | (set(committed) if scope.all_topics else set())
    given = set(target.offsets.get(group_id, ()))
    return given & of_topics if scope.topics else given
