"""Rows of the tables that are derived from `group_cells`, group by group."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from offsetstream.coordinator.groups import derive_group
from offsetstream.coordinator.rows import Cell
from offsetstream.tables.names import DERIVED_TABLES
from offsetstream.tables.rows import Rows

GROUP_CONSTANTS = ("offsets_partition", "log_id", "in_coordinator_partition")  # the same in every row of a group


def cell_of(row: Mapping[str, Any]) -> Cell:
    """Return the cell of a row of `group_cells`; the row may have `record_timestamp_ms` instead of a timestamp."""
    at = row.get("record_timestamp")
    return Cell(
        key_type=row["key_type"],
        key=json.loads(row["key_json"])["data"],
        value_version=row["value_version"],
        value=json.loads(row["value_json"])["data"],
        record_offset=row["record_offset"],
        record_timestamp_ms=row.get("record_timestamp_ms") if at is None else round(at.timestamp() * 1000),
    )


def rows_of_group(
    cells: Sequence[Cell],
    group_id: str,
    topic_names: Mapping[str, str],
    *,
    exists: bool,
    place: Mapping[str, Any] | None = None,
) -> dict[str, Rows] | None:
    """Return the group's rows by name of each of `DERIVED_TABLES`; None if there is no such group.

    `exists`: whether the coordinator has the group even without a cell. `place`: values of `GROUP_CONSTANTS`.
    """
    rows = derive_group(cells, group_id=group_id, exists=exists, topic_names=topic_names)
    if rows is None:
        return None
    rows.place(place or {})
    by_table: tuple[Rows, ...] = ([rows.group], rows.members, rows.shares, rows.subscriptions)
    return dict(zip(DERIVED_TABLES, by_table, strict=True))
