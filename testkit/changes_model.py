"""A plain model of the decoded history: it derives each group from the records before and after each step.

It is slow and short on purpose. Tests compare `offsetstream/group_history/` with it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from offsetstream.coordinator.groups import derive_group
from offsetstream.coordinator.rows import Cell
from offsetstream.tables.names import (
    ASSIGNMENT_HISTORY,
    DECODED_LOGS,
    DECODED_TABLES,
    GROUP_HISTORY,
    MEMBER_HISTORY,
    RECORDS,
)
from offsetstream.tables.rows import FIRST_MS, LAST_MS, cell_of
from offsetstream.tables.schema import SIGNATURE
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.store import Store

Row = dict[str, Any]
_PLACE = {"record_offset", "record_timestamp_ms"}
_NEVER = 1 << 63
_ASSIGNMENT = ("member_id", "kind", "subtopology_id", "topic_id", "topic", "partition")


def expected_changes(
    records: Iterable[Row], names: Mapping[str, str], ends: Mapping[tuple[int, int], Collection[int]] | None = None
) -> dict[str, list[Row]]:
    """Return the rows of each decoded table for rows of `group_records`, with times in milliseconds.

    `ends`: offsets of logs where a step must end.
    """
    found: dict[str, list[Row]] = {table: [] for table in DECODED_TABLES}
    groups = defaultdict[tuple[int, int, str], list[Row]](list)
    for record in sorted(records, key=lambda row: row["record_offset"]):
        groups[record["offsets_partition"], record["log_id"], record["group_id"]].append(record)
    for (partition, log_id, group_id), own in groups.items():
        place = {"offsets_partition": partition, "log_id": log_id}
        for table, row in _of_group(group_id, own, names, (ends or {}).get((partition, log_id), ())):
            found[table].append(_storable(row) | place)
    return found


def difference(tables: Store, names: Mapping[str, str], *, steps_may_be_split: bool = False) -> dict[str, list[str]]:
    """Return the missing and the excess rows of the decoded tables; empty if there are none.

    Records of a log before its start in `decoded_logs` are not expected.

    With `steps_may_be_split`, two appends of a group in one millisecond may be two steps, if a batch ended between
    them.
    """
    actual = {table: [_plain(row) for row in read_rows(tables.open(table))] for table in DECODED_TABLES}
    starts = {_log(row): row["decoded_from_offset"] for row in read_rows(tables.open(DECODED_LOGS))}
    ends = defaultdict[tuple[int, int], set[int]](set, {log: {start - 1} for log, start in starts.items()})
    for row in (row for rows in actual.values() for row in rows if steps_may_be_split):
        ends[_log(row)].add(row["record_offset"])
    expected = {
        table: [row for row in rows if row["record_offset"] >= starts.get(_log(row), _NEVER)]
        for table, rows in expected_changes(map(_plain, read_rows(tables.open(RECORDS))), names, ends).items()
    }
    result: dict[str, list[str]] = {}
    for table in DECODED_TABLES:
        lacking, beyond = _counted(expected[table]), _counted(actual[table])
        result[f"{table}: lacking"] = list((lacking - beyond).elements())
        result[f"{table}: beyond"] = list((beyond - lacking).elements())
    return {what: rows for what, rows in result.items() if rows}


def _log(row: Row) -> tuple[int, int]:
    return row["offsets_partition"], row["log_id"]


def _storable(row: Row) -> Row:
    """Return a row without the times that no engine can store; the tables leave them out, too."""
    at = row.get("state_timestamp_ms")
    return row if at is None or FIRST_MS <= at <= LAST_MS else row | {"state_timestamp_ms": None}


def _of_group(
    group_id: str, records: list[Row], names: Mapping[str, str], ends: Collection[int]
) -> Iterator[tuple[str, Row]]:
    cells: dict[tuple[int, str], Cell] = {}
    before = _derived(group_id, cells, names)
    for at, record in enumerate(records):
        key = (record["key_type"], record["key_json"])
        cells.pop(key, None)
        if record["value_json"] is not None:
            cells[key] = cell_of(record)
        following = records[at + 1] if at + 1 < len(records) else None
        if following and record["record_offset"] not in ends and _is_next(record, following):
            continue
        after = _derived(group_id, cells, names)
        yield from _compared(before, after, {name: record[name] for name in _PLACE})
        before = after


def _is_next(record: Row, following: Row) -> bool:
    is_next = following["record_offset"] == record["record_offset"] + 1
    return bool(is_next and following["record_timestamp_ms"] == record["record_timestamp_ms"])


Derived = tuple[Row | None, dict[str, Row], dict[tuple[Any, ...], Row]]


def _derived(group_id: str, cells: Mapping[Any, Cell], names: Mapping[str, str]) -> Derived:
    rows = derive_group([*cells.values()], group_id=group_id, exists=False, topic_names=names)
    if rows is None:
        return None, {}, {}
    topics = defaultdict[str, list[str]](list)
    for row in rows.subscriptions:
        topics[row["member_id"]].append(row["topic"])
    subscribed = {member: ",".join(sorted(set(own))) for member, own in topics.items()}
    members = {
        row["member_id"]: _data(row) | {"subscribed_topics": subscribed.get(row["member_id"])} for row in rows.members
    }
    return _data(rows.group), members, {tuple(row[n] for n in _ASSIGNMENT): _data(row) for row in rows.assignments}


def _data(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in _PLACE}


def _compared(before: Derived, after: Derived, place: Row) -> Iterator[tuple[str, Row]]:
    (old, old_members, old_partitions), (new, members, partitions) = before, after
    if old != new:
        yield GROUP_HISTORY, {**(new or old or {}), **place, "is_removed": new is None}
    group = new or old or {}
    epoch = group.get("group_epoch") if group.get("generation") is None else group["generation"]
    for key in old_members.keys() | members.keys():
        if old_members.get(key) != members.get(key):
            change = "left" if key not in members else "changed" if key in old_members else "joined"
            row = members.get(key) or old_members[key]
            yield MEMBER_HISTORY, {**row, **place, "change": change, "epoch": epoch}
    for of in old_partitions.keys() | partitions.keys():
        if old_partitions.get(of) != partitions.get(of):
            change = "revoked" if of not in partitions else "changed" if of in old_partitions else "assigned"
            row = partitions.get(of) or old_partitions[of]
            yield ASSIGNMENT_HISTORY, {**row, **place, "change": change, "epoch": epoch}


def _plain(row: Mapping[str, Any]) -> Row:
    plain = {name: value for name, value in row.items() if name not in SIGNATURE}
    for name in ("record_timestamp", "state_timestamp"):
        if name in plain:
            at = plain.pop(name)
            plain[f"{name}_ms"] = None if at is None else round(at.timestamp() * 1000)
    return plain


def _counted(rows: Iterable[Row]) -> Counter[str]:
    # The history keeps the topic name that belonged to the topic id at that time.
    named = (row | {"topic": None} if row.get("topic_id") is not None else row for row in rows)
    return Counter(str(sorted(row.items())) for row in named)
