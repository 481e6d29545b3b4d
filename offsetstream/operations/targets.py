"""Where a group is to stand, in the words of kafka-consumer-groups --reset-offsets, and as Kafka's tool finds it.

An offset outside the log becomes the nearest one in it, as there; here that is an objection besides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from offsetstream.cluster import log_ends
from offsetstream.cluster.committed import CommittedOffset, Place
from offsetstream.cluster.log_ends import Answers, LogEnd, NoEnd, TopicPlace
from offsetstream.operations.plan import NO_OFFSET, NO_TOPIC, OUT_OF_RANGE, UNKNOWN_LOG, Change, Objection

Word: TypeAlias = Literal["earliest", "latest", "current", "offset", "shift", "time", "offsets"]
Times: TypeAlias = Mapping[TopicPlace, int | str | None]


@dataclass(frozen=True)
class Target:
    """Where to: a word, with its offset, number of offsets or milliseconds since 1970; or `offsets` by group."""

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
    """Yield what becomes of each partition of a group, and what is said against it; `since`: where the time is."""
    for place in sorted(places):
        before, end = present.get(place), ends[TopicPlace(*place)]
        if isinstance(end, NoEnd):
            yield _without_log(group_id, place, end.error)
            continue
        asked = _asked(target, group_id, place, before, end, since.get(TopicPlace(*place)))
        if not isinstance(asked, CommittedOffset):
            kind, why = asked
            yield Objection(kind, group_id, place, why)
            continue
        new = asked if target.word == "current" else in_log(asked, end)  # as Kafka's tool: what stays is no jump
        if new is not asked:
            yield Objection(OUT_OF_RANGE, group_id, place, _out_of_range(asked, end))
        yield Change(group_id, *place, before, new, end.log_start_offset, end.high_watermark, end.topic_id)


def in_log(asked: CommittedOffset, end: LogEnd) -> CommittedOffset:
    """Return what was asked for, or the nearest offset in the log."""
    offset = asked.offset or 0
    nearest = min(max(offset, end.log_start_offset or 0), end.high_watermark)
    return asked if offset == nearest else CommittedOffset(nearest)


def _asked(
    target: Target,
    group_id: str,
    place: Place,
    present: CommittedOffset | None,
    end: LogEnd,
    since: int | str | None,
) -> CommittedOffset | tuple[str, str]:
    """Return what is asked for of a partition, or which objection there is and why."""
    if isinstance(since, str):
        return UNKNOWN_LOG, f"{since}: its leader does not tell which record is the first of that time"
    if target.word == "shift" and present is None:
        return NO_OFFSET, "nothing is committed that could be shifted"
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
        return Objection(NO_TOPIC, group_id, place, f"{error}: there is no such partition (any more)")
    why = "it has no leader" if error == log_ends.NO_LEADER else "its log is not known"
    return Objection(UNKNOWN_LOG, group_id, place, f"{error}: {why}")


def _out_of_range(asked: CommittedOffset, end: LogEnd) -> str:
    return (
        f"{asked.offset} is not in the log, which begins at {end.log_start_offset or 0} and ends at "
        f"{end.high_watermark}: it would become {in_log(asked, end).offset}"
    )
