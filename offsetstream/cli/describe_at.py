"""`groups describe --at`: read groups as they were at a past time, and sum them up in a sentence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from operator import itemgetter
from typing import Any

from offsetstream.cli.answers import Row, ends_of, ends_text, fetch_sorted, table_of
from offsetstream.cli.describe import End
from offsetstream.cli.group_state import Group
from offsetstream.cli.messages import counted
from offsetstream.cli.times import capitalized
from offsetstream.views.reader import ViewReader

_PARTS = ("group_members", "member_assignments", "committed_offsets")


def groups_at(reader: ViewReader, groups: tuple[str, ...]) -> Iterator[Group]:
    """Yield the given groups, or all, at the reader's time, sorted by group id."""
    parts = {table: _by_group(fetch_sorted(table_of(reader, table, {"group_id": groups}))) for table in _PARTS}
    for row in sorted(
        fetch_sorted(table_of(reader, "groups", {"group_id": groups})), key=itemgetter("group_id", "offsets_partition")
    ):
        place = row["offsets_partition"], row["group_id"]
        members, assignments, offsets = (parts[table][place] for table in _PARTS)
        yield Group(row, True, sorted(members, key=lambda member: member["member_id"]), assignments, offsets)


def ends_at(reader: ViewReader, groups: Iterable[Group]) -> tuple[dict[tuple[str, int], End], list[datetime]]:
    """Return the end offsets of the partitions that the groups read, and the times when they were sampled."""
    topics = {row["topic"] for group in groups for row in (*group.offsets, *group.assignments) if row["topic"]}
    return ends_of(reader, topics)


def closing_at(at: datetime, as_of: str, groups: list[Group], sampled: list[datetime] | None) -> str:
    """Return the sentence that describes the groups: as of when, type, state, generation, members, protocol."""
    texts = [_summary(group.row) for group in groups]
    if len(texts) > 1:
        texts = [f"{group.group_id}: {text}" for group, text in zip(groups, texts, strict=True)]
    ends = "" if sampled is None else f"; {ends_text(sampled, at)}"
    return f"{capitalized(as_of)}: {'; '.join(texts) or 'no group'}{ends}."


def _summary(row: Row) -> str:
    epoch = f"generation {row['generation']}" if row["group_type"] == "Classic" else f"epoch {row['group_epoch']}"
    parts = [row["group_type"], row["state"], epoch, counted(row["member_count"], "member"), row["protocol"]]
    return ", ".join(part for part in parts if part)


def _by_group(rows: Iterable[Row]) -> defaultdict[tuple[int, str], list[dict[str, Any]]]:
    found: defaultdict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row["offsets_partition"], row["group_id"]].append(row)
    return found
