"""The offsets view of `groups describe`, by column: fast for a million groups with few commits and no member."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from offsetstream.cli import describe as views
from offsetstream.cli.describe import End, TopicPartition
from offsetstream.cli.group_state import GroupBatch

_MEMBER_COLUMNS = ("consumer_id", "host", "client_id")


def topic_partitions(batch: GroupBatch) -> set[TopicPartition]:
    """Return the partitions that the view shows for these groups."""
    return views.topic_partitions(batch.with_members.values()).union(_places(batch))


def offset_columns(
    batch: GroupBatch, ends: Mapping[TopicPartition, End], *, clamped: bool, as_text: bool
) -> tuple[dict[str, list[Any]], list[int]]:
    """Return the rows of `describe.offset_rows` for each copy of a group, by column, and the row count of each copy.

    With `as_text`, copies that are not current have no rows, and the columns that distinguish copies are missing.
    """
    columns = _unowned(batch, ends, clamped=clamped) | ({} if as_text else _copies(batch))
    ranges = list(map(batch.offsets.range_of, batch.groups.copies))
    for number, group in batch.with_members.items():
        rows, end = views.offset_rows(group, ends, clamped=clamped), len(columns["group"])
        for name, values in columns.items():
            values += [row[name] for row in rows]
        ranges[number] = range(end, end + len(rows))
    if as_text:
        ranges = [rows if is_current else range(0) for rows, is_current in zip(ranges, batch.are_current, strict=True)]
    order = list(chain.from_iterable(ranges))
    return {name: [values[number] for number in order] for name, values in columns.items()}, list(map(len, ranges))


def _unowned(batch: GroupBatch, ends: Mapping[TopicPartition, End], *, clamped: bool) -> dict[str, list[Any]]:
    """Return the columns of all commits, as for partitions without an owner."""
    commits, offsets = batch.offsets.columns, batch.offsets.columns["committed_offset"]
    states = [
        views.offset_state(offset, end, clamped=clamped)
        for offset, end in zip(offsets, map(ends.get, _places(batch)), strict=True)
    ]
    by_column = list(zip(*states, strict=True)) or [()] * len(views.OFFSET_STATE)
    return {
        "group": [*commits["group_id"]],
        "topic": [*commits["topic"]],
        "partition": [*commits["partition"]],
        "leader_epoch": [*commits["leader_epoch"]],
        **{name: [*values] for name, values in zip(views.OFFSET_STATE, by_column, strict=True)},
        **{name: [None] * len(offsets) for name in _MEMBER_COLUMNS},
    }


def _copies(batch: GroupBatch) -> dict[str, list[Any]]:
    """Return for each commit the columns that identify the copy of its group."""
    groups = batch.groups.columns
    facts = dict(
        zip(
            batch.groups.copies, zip(groups["in_coordinator_partition"], groups["group_type"], strict=True), strict=True
        )
    )
    copies = [facts.get(copy, (None, None)) for copy in batch.offsets.copies]
    return {
        "offsets_partition": [*batch.offsets.columns["offsets_partition"]],
        "in_coordinator_partition": [is_home for is_home, _ in copies],
        "type": [group_type for _, group_type in copies],
    }


def _places(batch: GroupBatch) -> Iterator[TopicPartition]:
    topics: Sequence[str] = batch.offsets.columns["topic"]
    return zip(topics, batch.offsets.columns["partition"], strict=True)
