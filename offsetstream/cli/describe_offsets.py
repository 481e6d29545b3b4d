"""The view of offsets of `groups describe`, by column: of a million groups most have a commit or two and no member."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from offsetstream.cli import describe as views
from offsetstream.cli.describe import End, TopicPartition
from offsetstream.cli.group_state import SomeGroups

_OF_MEMBERS = ("consumer_id", "host", "client_id")


def topic_partitions(some: SomeGroups) -> set[TopicPartition]:
    """Return the partitions that the view shows of these groups."""
    return views.topic_partitions(some.with_members.values()).union(_places(some))


def offset_columns(
    some: SomeGroups, ends: Mapping[TopicPartition, End], *, clamped: bool, as_text: bool
) -> tuple[dict[str, list[Any]], list[int]]:
    """Return what `describe.offset_rows` has of each copy of a group, by column, and how many rows each copy has.

    `as_text`: there are no rows of copies that are not current, and no columns that tell these apart.
    """
    columns = _unowned(some, ends, clamped=clamped) | ({} if as_text else _copies(some))
    ranges = list(map(some.offsets.range_of, some.groups.copies))
    for number, group in some.with_members.items():
        rows, end = views.offset_rows(group, ends, clamped=clamped), len(columns["group"])
        for name, values in columns.items():
            values += [row[name] for row in rows]
        ranges[number] = range(end, end + len(rows))
    if as_text:
        ranges = [own if is_current else range(0) for own, is_current in zip(ranges, some.are_current, strict=True)]
    order = list(chain.from_iterable(ranges))
    return {name: [values[number] for number in order] for name, values in columns.items()}, list(map(len, ranges))


def _unowned(some: SomeGroups, ends: Mapping[TopicPartition, End], *, clamped: bool) -> dict[str, list[Any]]:
    """Return the columns of all commits as they are where nobody owns a partition."""
    own, offsets = some.offsets.columns, some.offsets.columns["committed_offset"]
    stands = [
        views.standing(offset, end, clamped=clamped)
        for offset, end in zip(offsets, map(ends.get, _places(some)), strict=True)
    ]
    standings = list(zip(*stands, strict=True)) or [()] * len(views.STANDING)
    return {
        "group": [*own["group_id"]],
        "topic": [*own["topic"]],
        "partition": [*own["partition"]],
        "leader_epoch": [*own["leader_epoch"]],
        **{name: [*values] for name, values in zip(views.STANDING, standings, strict=True)},
        **{name: [None] * len(offsets) for name in _OF_MEMBERS},
    }


def _copies(some: SomeGroups) -> dict[str, list[Any]]:
    """Return of each commit which copy of its group has it."""
    groups = some.groups.columns
    facts = dict(
        zip(some.groups.copies, zip(groups["in_coordinator_partition"], groups["group_type"], strict=True), strict=True)
    )
    of_groups = [facts.get(copy, (None, None)) for copy in some.offsets.copies]
    return {
        "offsets_partition": [*some.offsets.columns["offsets_partition"]],
        "in_coordinator_partition": [is_home for is_home, _ in of_groups],
        "type": [group_type for _, group_type in of_groups],
    }


def _places(some: SomeGroups) -> Iterator[TopicPartition]:
    topics: Sequence[str] = some.offsets.columns["topic"]
    return zip(topics, some.offsets.columns["partition"], strict=True)
