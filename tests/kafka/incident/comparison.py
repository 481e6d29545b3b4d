"""Compares the rows of a view with the rows that it must have."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from tests.kafka.incident.book import Book, Cell

Row = dict[str, Any]
Rows = list[Row]
_CELL = ("group_id", "topic", "partition")
_BY_GROUP = ("group_id",)
KEYS: dict[str, tuple[str, ...]] = {
    "lag": _CELL,
    "lag_history": _CELL,
    "time_lag": _CELL,
    "commit_audit": (*_CELL, "previous_offset", "committed_offset"),
    "commit_freshness": _CELL,
    "commit_rate": ("group_id", "topic"),
    "tombstone_reasons": (*_CELL, "last_offset"),
    "orphan_offsets": _CELL,
    "expiring_offsets": _CELL,
    "idle_groups": _BY_GROUP,
    "group_status": _BY_GROUP,
    "status_changes": _BY_GROUP,
    "rebalances": _BY_GROUP,
    "assignment_intervals": ("group_id", "member_id", "kind", "subtopology_id", "topic", "partition"),
    "hot_offsets_partitions": ("offsets_partition",),
    "coordinator_moves": ("offsets_partition", "coordinator_epoch"),
    "offsets_at": _CELL,
}


def differences(view: str, expected_rows: Rows, rows: Rows, book: Book) -> list[str]:
    """Return the differences between expected and actual rows of a view, in the columns that the expected rows have."""
    expected, actual = _by_key(expected_rows, KEYS[view]), _by_key(_prepared(view, rows, book), KEYS[view])
    messages = [f"{view} lacks {row}" for key in expected.keys() - actual.keys() for row in expected[key]]
    messages += [f"{view} has beyond that {row}" for key in actual.keys() - expected.keys() for row in actual[key]]
    for key in expected.keys() & actual.keys():
        if len(expected[key]) != len(actual[key]):
            messages.append(f"{view} has {len(actual[key])} rows for {expected[key]}")
        messages += [
            f"{view}: {key}: {name} is {row[name]!r}, not {value!r}"
            for expected_row, row in zip(expected[key], actual[key], strict=False)
            for name, value in expected_row.items()
            if not _matches(value, row[name])
        ]
    return messages


def cell_of(row: Row) -> Cell:
    return Cell(*(row[name] for name in _CELL))


def _by_key(rows: Rows, key: tuple[str, ...]) -> dict[str, Rows]:
    result = defaultdict[str, Rows](list)
    for row in rows:
        result[json.dumps([row[name] for name in key])].append(row)
    return dict(result)


def _matches(expected: object, value: Any) -> bool:
    if isinstance(expected, Mapping) and "among" in expected:
        return value in expected["among"]
    if isinstance(expected, Mapping):
        low, high = expected["between"]
        return value is not None and bool(low <= value <= high)
    return bool(expected == value)


def _prepared(view: str, rows: Rows, book: Book) -> Rows:
    """Return the rows that the script can predict: without groups that commit at times of their own."""
    if view in {"commit_rate", "tombstone_reasons", "commit_audit"}:
        rows = [row for row in rows if row["group_id"] not in book.automatic]
    if view == "commit_rate":
        return _summed(rows)
    if view == "rebalances":
        return _folded([row for row in rows if row["group_id"] in {each.group for each in book.passings}])
    if view == "assignment_intervals":
        return [row for row in rows if row["is_current"] and row["kind"] not in {"target", "pending_revocation"}]
    if view == "status_changes":
        return [row for row in rows if row["group_id"] in book.steady]
    by_book = {"coordinator_moves": _merged_moves, "lag_history": _last_minute_rows}
    return by_book[view](rows, book) if view in by_book else rows


def _last_minute_rows(rows: Rows, book: Book) -> Rows:
    current_offsets = book.current_offsets()
    result = {cell_of(row): row for row in sorted(rows, key=lambda row: row["minute"])}
    return [row for cell, row in result.items() if cell in current_offsets]


def _merged_moves(rows: Rows, book: Book) -> Rows:
    """Merge the coordinator moves during the outage: the script knows only their result."""
    result: dict[object, Row] = {}
    for row in sorted(rows, key=lambda row: row["event_at"]):
        during = book.cut["began_ms"] <= row["event_at"] // 1000 <= book.cut["seen_ms"]
        key = row["offsets_partition"] if during else (row["offsets_partition"], row["coordinator_epoch"])
        first = result.get(key, row)
        result[key] = row | {name: first[name] for name in ("previous_coordinator_id", "previous_coordinator_epoch")}
    return list(result.values())


def _summed(rows: Rows) -> Rows:
    result: dict[tuple[str, str], Row] = {}
    for row in rows:
        sums = result.setdefault((row["group_id"], row["topic"]), {"group_id": row["group_id"], "topic": row["topic"]})
        for name in ("commits", "messages", "commits_back", "commits_without_progress"):
            sums[name] = sums.get(name, 0) + row[name]
    return list(result.values())


def _folded(rows: Rows) -> Rows:
    """Return the last epoch of each group, with all members that joined or left in any epoch."""
    result: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: row["record_offset"]):
        before = result.get(row["group_id"], {"joined": [], "left": []})
        changes = {
            change: sorted([*before[change], *(row[f"{change}_clients"] or "").split(", ")])
            for change in ("joined", "left")
        }
        result[row["group_id"]] = row | {
            change: [each for each in clients if each] for change, clients in changes.items()
        }
    return list(result.values())
