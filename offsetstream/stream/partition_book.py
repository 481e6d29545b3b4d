"""The book of the offsets partitions: how far each is replayed, its loads, its coordinator, and the events of these.

The driver holds the rows in memory, since only one job writes them, and writes them last in each batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from deltalake import DeltaTable

from offsetstream.cluster.client import PartitionEnds
from offsetstream.tables.location import TablesLocation
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small import insert_rows, overwrite_rows, read_rows
from offsetstream.tables.transaction import BatchId

TABLE = "offsets_partitions"
EVENTS = "partition_events"
_OF_EVERY_EVENT = ("offsets_partition", "log_id", "load_id", "coordinator_id", "coordinator_epoch")
LOADING, OWNED, FAILED = "LOADING", "OWNED", "FAILED"


class PartitionBook:
    """The rows of ``offsets_partitions``, by partition, and the events that wait to be written."""

    def __init__(self, tables: TablesLocation, partitions: Iterable[int]) -> None:
        self._tables = tables
        self._columns = load_schema(TABLE).column_names
        self._events: list[dict[str, Any]] = []
        self.rows = {number: self._empty(number) for number in partitions}
        self.rows |= {row["offsets_partition"]: row for row in read_rows(DeltaTable(tables.table(TABLE)))}

    def _empty(self, partition: int) -> dict[str, Any]:
        return dict.fromkeys(self._columns) | {"offsets_partition": partition, "log_id": 0}

    @property
    def partitions(self) -> list[int]:
        """The numbers of the offsets partitions, in order."""
        return sorted(self.rows)

    @property
    def log_ids(self) -> dict[int, int]:
        """The present log of each partition."""
        return {number: row["log_id"] for number, row in self.rows.items()}

    @property
    def next_offsets(self) -> dict[int, int]:
        """How far each partition is applied; partitions that never were are not there."""
        return {number: row["next_offset"] for number, row in self.rows.items() if row["next_offset"] is not None}

    @property
    def loaded_count(self) -> int:
        """How many partitions are loaded."""
        return sum(row["load_state"] == OWNED for row in self.rows.values())

    def observe(self, ends: Mapping[int, PartitionEnds]) -> None:
        """Take in what the cluster says of the partitions."""
        now = datetime.now(UTC)
        for number, seen in ends.items():
            row = self.rows[number]
            row |= {
                "log_start_offset": seen.log_start_offset,
                "last_stable_offset": seen.last_stable_offset,
                "high_watermark": seen.high_watermark,
                "coordinator_id": seen.coordinator_id,
                "coordinator_epoch": seen.coordinator_epoch,
                "coordinator_available": seen.coordinator_id is not None,
            }
            if row["load_state"] == OWNED and row["next_offset"] >= seen.last_stable_offset:
                row["caught_up_at"] = now

    def advance(self, ends: Mapping[int, int]) -> None:
        """Note that every record below the given offsets is applied."""
        for number, end in ends.items():
            row = self.rows[number]
            row["next_offset"] = max(row["next_offset"] or 0, end)

    def begin_log(self, partition: int) -> None:
        """Note that the partition's log was truncated or recreated: offsets mean other records from now on."""
        self.rows[partition] |= {"log_id": self.rows[partition]["log_id"] + 1, "next_offset": None}

    def start_load(self, ends: Mapping[int, int]) -> None:
        """Note that loads up to the given offsets (exclusive) have started."""
        for number, end in ends.items():
            row = self.rows[number]
            row |= {
                "load_state": LOADING,
                "load_id": (row["load_id"] or 0) + 1,
                "load_started_at": datetime.now(UTC),
                "loaded_at": None,
                "load_end_offset": end,
            }
            self._event(row, "load started", event_at=row["load_started_at"])

    def finish_load(self, partition: int, records: int, groups: int, offsets: int) -> None:
        """Note that the partition is loaded: everything below the load's end is applied."""
        row = self.rows[partition]
        now = datetime.now(UTC)
        if row["next_offset"] is None or row["next_offset"] < row["load_end_offset"]:
            # Of what the stream did not bring, compaction had taken its part before the load came.
            row["history_complete_from"] = row["load_started_at"]
        row |= {
            "load_state": OWNED,
            "loaded_at": now,
            "caught_up_at": now,
            "next_offset": max(row["next_offset"] or 0, row["load_end_offset"]),
            "groups_count": groups,
            "offsets_count": offsets,
        }
        took = int((now - row["load_started_at"]).total_seconds() * 1000)
        self._event(row, "loaded", event_at=now, records=records, groups=groups, offsets=offsets, milliseconds=took)

    def _event(self, row: dict[str, Any], event: str, **columns: Any) -> None:
        copied = {name: row[name] for name in _OF_EVERY_EVENT}
        self._events.append({"event": event, "source": "job", **copied, **columns})

    def write(self, batch: BatchId) -> None:
        """Write the events, then the rows: the last write of a batch."""
        if self._events:
            insert_rows(self._tables, EVENTS, self._events, batch)
            self._events.clear()
        overwrite_rows(self._tables, TABLE, self.rows.values(), batch)
