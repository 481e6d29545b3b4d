"""The state tables as dictionaries, updated by the job's own pure functions, without Spark and Delta."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from offsetstream.codec import decode_records
from offsetstream.codec.batches import LogRecord, RecordBatch
from offsetstream.codec.log_segments import find_transactions
from offsetstream.coordinator.groups import derive_group
from offsetstream.coordinator.partitioning import Coordinator
from offsetstream.coordinator.reduction import (
    COMMIT_CELL,
    GROUP_CELL,
    group_facts,
    last_record_per_cell,
    new_coordinator_keeps,
)
from offsetstream.coordinator.rows import GroupRows
from offsetstream.tables.rows import cell_of
from tests.conformance.state_rows import snapshot

PARTITION = 0
CellKey = tuple[Any, ...]


def consumed(batches: Iterable[RecordBatch]) -> list[LogRecord]:
    """Return the records of the log that a read_committed consumer gets."""
    whole = list(batches)
    return [record for batch in find_transactions(whole).committed(whole) for record in batch.records]


class PureTables:
    """One offsets partition."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._is_classic = coordinator == "classic"
        self._commits: dict[CellKey, dict[str, Any]] = {}
        self._cells: dict[CellKey, dict[str, Any]] = {}
        self._groups: dict[str, GroupRows] = {}

    def apply(self, records: Iterable[LogRecord]) -> None:
        """Apply a batch."""
        decoded = decoded_records(list(records))
        commits, cells = last_record_per_cell(decoded)
        _merge(self._commits, commits, COMMIT_CELL)
        _merge(self._cells, cells, GROUP_CELL)
        facts = group_facts(decoded, commits)
        groups, touched = facts["group_id"].to_pylist(), facts["is_touched"].to_pylist()
        existed = [group_id in self._groups for group_id in groups]
        keeps = new_coordinator_keeps(facts, pa.array(existed, pa.bool_())).to_pylist()
        for group_id, is_touched, was_there, is_kept in zip(groups, touched, existed, keeps, strict=True):
            if is_touched or not was_there:
                has_offsets = any(row["group_id"] == group_id for row in self._commits.values())
                self._derive(group_id, exists=has_offsets if self._is_classic else is_kept)

    def _derive(self, group_id: str, *, exists: bool) -> None:
        cells = [cell_of(row) for row in self._cells.values() if row["group_id"] == group_id]
        rows = derive_group(cells, group_id=group_id, exists=exists)
        self._groups.pop(group_id, None)
        if rows is not None:
            self._groups[group_id] = rows

    def snapshot(self) -> dict[str, Any]:
        groups = self._groups.values()
        return snapshot(
            {
                "groups": [rows.group for rows in groups],
                "group_members": [row for rows in groups for row in rows.members],
                "member_assignments": [row for rows in groups for row in rows.assignments],
                "committed_offsets": list(self._commits.values()),
            }
        )


def decoded_records(records: list[LogRecord]) -> pa.Table:
    """The records as the job decodes them."""
    keys = pa.array([record.key for record in records], pa.binary())
    values = pa.array([record.value for record in records], pa.binary())
    table = pa.table(decode_records(keys, values).to_pydict(), decode_records(keys, values).schema)
    offsets = [record.offset for record in records]
    columns = {
        "offsets_partition": pa.array([PARTITION] * len(records), pa.int32()),
        "record_offset": pa.array(offsets, pa.int64()),
        "record_timestamp_ms": pa.array([record.timestamp_ms for record in records], pa.int64()),
        "value_offset": pa.array([r.offset if r.value is not None else None for r in records], pa.int64()),
        "tombstone_offset": pa.array([r.offset if r.value is None else None for r in records], pa.int64()),
        "in_coordinator_partition": pa.array([True] * len(records), pa.bool_()),
    }
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table


def _merge(cells: dict[CellKey, dict[str, Any]], last: pa.Table, cell: tuple[str, ...]) -> None:
    for row in last.to_pylist():
        cells.pop(tuple(row[name] for name in cell), None)
        if not row["is_tombstone"]:
            cells[tuple(row[name] for name in cell)] = row
