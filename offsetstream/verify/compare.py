"""Compare the rows of the tables with a cluster's answers, column by column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from offsetstream.verify.answers import Answers
from offsetstream.verify.difference import Difference, Key, Row, row_differences
from offsetstream.verify.tables import TableRows

KEYS = {
    "groups": ("group_id",),
    "group_members": ("group_id", "member_id"),
    "member_assignments": ("group_id", "member_id", "kind", "subtopology_id", "topic", "partition"),
    "committed_offsets": ("group_id", "topic", "partition"),
}
# Columns that an Admin client gets. A None from it is compared only for columns that it always gets.
COLUMNS = {
    "groups": (
        "group_type", "state", "is_simple", "protocol_type", "protocol", "group_epoch", "assignment_epoch",
        "member_count", "coordinator_id",
    ),
    "group_members": (
        "group_instance_id", "client_id", "client_host", "member_epoch", "is_classic_protocol", "process_id",
        "user_endpoint", "topology_epoch",
    ),
    "member_assignments": (),
    "committed_offsets": ("committed_offset", "leader_epoch", "metadata"),
}  # fmt: skip
_TOLD_BY_NONE = {"group_instance_id", "leader_epoch"}
_CURRENT = ("assigned", "active", "standby", "warmup")


def differences(tables: TableRows, answers: Answers) -> list[Difference]:
    """Return every difference, by table and key, except for groups that disappeared during the query."""
    listed = {row["group_id"]: row["group_type"] for row in answers.groups}
    of_answers = {
        "groups": answers.groups,
        "group_members": answers.members,
        "member_assignments": answers.assignments,
        "committed_offsets": answers.offsets,
    }
    asked: dict[str, list[Row]] = {table: list(rows) for table, rows in tables.rows.items()}
    asked["groups"] = [_as_told(row, tables, listed) for row in tables.rows["groups"]]
    asked["member_assignments"] = list(_told_assignments(tables.rows["member_assignments"], answers, listed))
    # The log may have offsets without a group, but no coordinator returns them (reference 5.5). Clients drop negative
    # offsets.
    offsets = (row for row in tables.rows["committed_offsets"] if row["group_id"] in listed)
    asked["committed_offsets"] = [row for row in offsets if row["committed_offset"] >= 0]
    unseen = groups_not_compared(tables, answers) | answers.gone
    found = [d for table, rows in of_answers.items() for d in _of_table(table, asked[table], rows)]
    return sorted((d for d in found if d.group_id not in unseen), key=lambda d: (d.table, str(d.key), d.column))


def groups_not_compared(tables: TableRows, answers: Answers) -> set[str]:
    """Return the groups of the tables that the client cannot see, cannot read, or cannot tell apart."""
    unseen = set(answers.unreadable)
    unseen |= {row["group_id"] for row in tables.rows["groups"] if row["group_type"] in answers.invisible_types}
    if answers.cuts_group_ids:
        ids = {row["group_id"] for rows in tables.rows.values() for row in rows}
        cut = {group_id.partition("\0")[0] for group_id in ids if "\0" in group_id}
        unseen |= {group_id for group_id in ids if not group_id or "\0" in group_id} | cut
    return unseen


def _as_told(row: Row, tables: TableRows, listed: Mapping[str, str]) -> Row:
    """Return the group's row with its coordinator. Newer group types have a protocol type of the same name."""
    partition = tables.placement.of(row["group_id"])
    coordinator = tables.partitions[partition]["coordinator_id"] if partition is not None else None
    group_type = listed.get(row["group_id"], row["group_type"])
    protocol_type = row["protocol_type"] if group_type == "Classic" else group_type.lower()
    return {**row, "coordinator_id": coordinator, "protocol_type": protocol_type}


def _told_assignments(rows: Iterable[Row], answers: Answers, listed: Mapping[str, str]) -> Iterator[Row]:
    """Yield the assignments whose kind the cluster reports, for the members that it returned.

    Assignments of a streams group are tasks. No cluster reports partitions that wait for revocation.
    """
    with_target = {(row["group_id"], row["member_id"]) for row in answers.members if row.get("tells_target")}
    for row in rows:
        if row["kind"] in _CURRENT or (row["kind"] == "target" and (row["group_id"], row["member_id"]) in with_target):
            yield row if listed.get(row["group_id"]) != "Streams" else {**row, "topic": None}


def _of_table(table: str, in_tables: Iterable[Row], in_cluster: Iterable[Row]) -> Iterator[Difference]:
    alone, pairs = row_differences(table, KEYS[table], in_tables, in_cluster)
    yield from alone
    for key, ours, theirs in pairs:
        yield from _of_row(table, key, ours, theirs)


def _of_row(table: str, key: Key, ours: Row, theirs: Row) -> Iterator[Difference]:
    for column in COLUMNS[table]:
        told = theirs.get(column)
        if told is None and (column not in _TOLD_BY_NONE or column not in theirs):
            continue
        if ours[column] != told:
            yield Difference(table, KEYS[table], key, column, ours[column], told)
