"""The rows of a view against what was written down that it must say."""

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


def differences(view: str, wanted: Rows, found: Rows, book: Book) -> list[str]:
    """Return how the rows of a view differ from those that it must have, in the columns that these name."""
    rows = _prepared(view, found, book)
    expected, actual = _by_key(wanted, KEYS[view]), _by_key(rows, KEYS[view])
    told = [f"{view} lacks {row}" for key in expected.keys() - actual.keys() for row in expected[key]]
    told += [f"{view} has beyond that {row}" for key in actual.keys() - expected.keys() for row in actual[key]]
    for key in expected.keys() & actual.keys():
        if len(expected[key]) != len(actual[key]):
            told.append(f"{view} has {len(actual[key])} rows for {expected[key]}")
        told += [
            f"{view}: {key}: {name} is {row[name]!r}, not {value!r}"
            for one, row in zip(expected[key], actual[key], strict=False)
            for name, value in one.items()
            if not _holds(value, row[name])
        ]
    return told


def cell_of(row: Row) -> Cell:
    return Cell(*(row[name] for name in _CELL))


def _by_key(rows: Rows, key: tuple[str, ...]) -> dict[str, Rows]:
    found = defaultdict[str, Rows](list)
    for row in rows:
        found[json.dumps([row[name] for name in key])].append(row)
    return dict(found)


def _holds(wanted: object, value: Any) -> bool:
    if isinstance(wanted, Mapping) and "among" in wanted:
        return value in wanted["among"]
    if isinstance(wanted, Mapping):
        low, high = wanted["between"]
        return value is not None and bool(low <= value <= high)
    return bool(wanted == value)


def _prepared(view: str, rows: Rows, book: Book) -> Rows:
    """The rows that the script knows of: not those of groups that commit when they like."""
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
    by_book = {"coordinator_moves": _once, "lag_history": _last_minutes}
    return by_book[view](rows, book) if view in by_book else rows


def _last_minutes(rows: Rows, book: Book) -> Rows:
    standing = book.standing()
    found = {cell_of(row): row for row in sorted(rows, key=lambda row: row["minute"])}
    return [row for cell, row in found.items() if cell in standing]


def _once(rows: Rows, book: Book) -> Rows:
    """Of what happened while no broker was there, and they came back, the script knows what came of it."""
    found: dict[object, Row] = {}
    for row in sorted(rows, key=lambda row: row["event_at"]):
        during = book.cut["began_ms"] <= row["event_at"] // 1000 <= book.cut["seen_ms"]
        key = row["offsets_partition"] if during else (row["offsets_partition"], row["coordinator_epoch"])
        first = found.get(key, row)
        found[key] = row | {name: first[name] for name in ("previous_coordinator_id", "previous_coordinator_epoch")}
    return list(found.values())


def _summed(rows: Rows) -> Rows:
    found: dict[tuple[str, str], Row] = {}
    for row in rows:
        into = found.setdefault((row["group_id"], row["topic"]), {"group_id": row["group_id"], "topic": row["topic"]})
        for name in ("commits", "messages", "commits_back", "commits_without_progress"):
            into[name] = into.get(name, 0) + row[name]
    return list(found.values())


def _folded(rows: Rows) -> Rows:
    """Of each group its last epoch, with all who came and went in any."""
    found: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: row["record_offset"]):
        before = found.get(row["group_id"], {"joined": [], "left": []})
        changes = {
            change: sorted([*before[change], *(row[f"{change}_clients"] or "").split(", ")])
            for change in ("joined", "left")
        }
        found[row["group_id"]] = row | {change: [each for each in own if each] for change, own in changes.items()}
    return list(found.values())
