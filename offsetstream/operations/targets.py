"""The targets of a reset, as in `kafka-consumer-groups --reset-offsets`, and the offsets that they give.

Like Kafka's tool, move an offset outside the log to the nearest one inside. Unlike it, also yield an objection.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from offsetstream.cluster import log_ends
from offsetstream.cluster.answers import CommittedOffset, Place
from offsetstream.cluster.log_ends import Answers, LogEnd, NoEnd, TopicPartitionKey
from offsetstream.operations.plan import NO_OFFSET, NO_TOPIC, OUT_OF_RANGE, UNKNOWN_LOG, Change, Objection

Word: TypeAlias = Literal["earliest", "latest", "current", "offset", "shift", "time", "offsets"]
Times: TypeAlias = Mapping[TopicPartitionKey, int | str | None]


@dataclass(frozen=True)
class Target:
    """A reset target.

    `value` is an offset (word "offset"), a number of offsets ("shift") or milliseconds since 1970 ("time"). `offsets`
    has the new offsets by group (word "offsets").
    """

    word: Word
    value: int = 0
    offsets: Mapping[str, Mapping[Place, CommittedOffset]] = field(default_factory=dict)


def changes_of(
    target: Target,
    group_id: str,
    places: Collection[Place],
    present: Mapping[Place, CommittedOffset],
    ends: Answers,
    since: Times,
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
