"""The expected state tables, from a plain replay of record after record into dictionaries (reference 5.3, 5.5, 5.9)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from offsetstream.coordinator.groups import derive_group
from offsetstream.coordinator.partitioning import Coordinator, partition_for
from offsetstream.coordinator.rows import Cell, GroupRows
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import read_rows
from tests.spark.log import PARTITIONS, Record

Row = dict[str, Any]
STATE = ("committed_offsets", "group_cells", "groups", "group_members", "member_assignments", "member_subscriptions")
GROUP_RECORDS = (2, 3, 11, 17)
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999


class Replay:
    """The memory of the coordinators of all partitions, either all new or all classic."""

    def __init__(self, coordinator: Coordinator, log_ids: Mapping[int, int] | None = None) -> None:
        self._is_new = coordinator == "new"
        self._log_ids = log_ids or {}
        self._commits: dict[tuple[int, str], dict[tuple[str, int], Record]] = {}
        self._cells: dict[tuple[int, str], dict[tuple[int, str], Record]] = {}
        self._groups: set[tuple[int, str]] = set()  # state of the new coordinator

    def apply(self, records: Iterable[Record]) -> Replay:
        for record in records:
            if record.key_json:
                self._apply(record)
        return self

    def _apply(self, record: Record) -> None:
        data = record.key_json["data"]
        group = (record.offsets_partition, data["group"] if "group" in data else data["groupId"])
        if record.key_type in (0, 1):
            offsets, place = self._commits.setdefault(group, {}), (data["topic"], data["partition"])
            _put(offsets, place, record)
            if record.value is not None:
                self._groups.add(group)
        else:
            _put(self._cells.setdefault(group, {}), (record.key_type, json.dumps(data)), record)
            if record.value is not None:
                self._groups.add(group)
            elif record.key_type in GROUP_RECORDS:
                self._groups.discard(group)

    def tables(self) -> dict[str, list[Row]]:
        """The rows of the state tables, with times in milliseconds and JSON as data."""
        found: dict[str, list[Row]] = {table: [] for table in STATE}
        for group in self._commits.keys() | self._cells.keys():
            commits, cells = self._commits.get(group, {}), self._cells.get(group, {})
            found["committed_offsets"] += [_commit_row(group, record) for record in commits.values()]
            found["group_cells"] += [_cell_row(group, record) for record in cells.values()]
            exists = group in self._groups if self._is_new else bool(commits)
            rows = derive_group([_cell(record) for record in cells.values()], group_id=group[1], exists=exists)
            for table, derived in _derived(rows).items():
                found[table] += [_place(group) | _times(row) for row in derived]
        for row in (row for rows in found.values() for row in rows):
            row["log_id"] = self._log_ids.get(row["offsets_partition"], 0)
        return found


def difference(tables: PathStore, replay: Replay) -> dict[str, list[str]]:
    """Rows that the state tables lack or have in excess; empty if they are equal and each row is there once."""
    expected = replay.tables()
    found = {name: [_plain(row) for row in read_rows(tables.open(name))] for name in STATE}
    result: dict[str, list[str]] = {}
    for name in STATE:
        lacking, beyond = _counted(expected[name]), _counted(found[name])
        result[f"{name}: lacking"] = list((lacking - beyond).elements())
        result[f"{name}: beyond"] = list((beyond - lacking).elements())
    return {what: rows for what, rows in result.items() if rows}


def _counted(rows: Iterable[Row]) -> Counter[str]:
    return Counter(str(dict(sorted(row.items()))) for row in rows)


def _put(cells: dict[Any, Record], key: Any, record: Record) -> None:
    cells.pop(key, None)
    if record.value is not None:
        cells[key] = record


def _place(group: tuple[int, str]) -> Row:
    home = partition_for(group[1], PARTITIONS)
    return {
        "offsets_partition": group[0],
        "group_id": group[1],
        "log_id": None,  # known at the end
        "in_coordinator_partition": group[0] == home,
    }


def _commit_row(group: tuple[int, str], record: Record) -> Row:
    assert record.value is not None
    assert record.value_json is not None
    key, value = record.key_json["data"], record.value_json["data"]
    expires = value.get("expireTimestamp", -1)
    epoch = value.get("leaderEpoch", -1)
    row = _place(group) | _source(record) | {"topic": key["topic"], "partition": key["partition"]}
    row |= {"committed_offset": value["offset"], "metadata": value["metadata"], "topic_id": value.get("topicId")}
    row |= {"leader_epoch": None if epoch == -1 else epoch}
    row |= {"commit_timestamp_ms": value["commitTimestamp"], "commit_timestamp": _storable(value["commitTimestamp"])}
    row |= {"expire_timestamp_ms": None if expires == -1 else expires}
    row |= {"expire_timestamp": None if expires == -1 else _storable(expires), "key_version": record.key_type}
    return {name: row[name] for name in load_schema("committed_offsets").column_names}


def _cell_row(group: tuple[int, str], record: Record) -> Row:
    row = _place(group) | _source(record)
    row |= {"key_type": record.key_type, "key_json": record.key_json, "value_json": record.value_json}
    return {name: row[name] for name in load_schema("group_cells").column_names}


def _source(record: Record) -> Row:
    assert record.value is not None
    assert record.value_json is not None
    return {
        "record_offset": record.record_offset,
        "record_timestamp": record.timestamp_ms,
        "value_version": record.value_json["version"],
        "value_bytes": len(record.value),
    }


def _cell(record: Record) -> Cell:
    assert record.value_json is not None
    return Cell(
        key_type=record.key_type,
        key=record.key_json["data"],
        value=record.value_json["data"],
        record_offset=record.record_offset,
        record_timestamp_ms=record.timestamp_ms,
    )


def _derived(rows: GroupRows | None) -> dict[str, list[Row]]:
    if rows is None:
        return {}
    members = {"group_members": rows.members, "member_assignments": rows.assignments}
    return {"groups": [rows.group], **members, "member_subscriptions": rows.subscriptions}


def _times(row: Row) -> Row:
    times = {name.removesuffix("_ms"): _storable(row[name]) for name in row if name.endswith("_timestamp_ms")}
    return {name: value for name, value in row.items() if not name.endswith("_timestamp_ms")} | times


def _storable(milliseconds: int | None) -> int | None:
    return milliseconds if milliseconds is not None and _FIRST_MS <= milliseconds <= _LAST_MS else None


def _plain(row: Row) -> Row:
    plain: Row = {
        name: round(value.timestamp() * 1000) if isinstance(value, datetime) else value for name, value in row.items()
    }
    return plain | {name: json.loads(plain[name]) for name in ("key_json", "value_json") if name in plain}
