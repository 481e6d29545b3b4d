"""Events of offsets partitions, for the table `partition_events`."""

from __future__ import annotations

from typing import Any

from offsetstream.stream.partitions.partition_row import PartitionRow
from offsetstream.tables.names import PARTITION_EVENTS
from offsetstream.tables.small_tables import insert_rows
from offsetstream.tables.store import Store
from offsetstream.tables.transaction import BatchId

_COMMON_COLUMNS = ("offsets_partition", "log_id", "load_id", "coordinator_id", "coordinator_epoch")


class PartitionEvents:
    """Events that are not written yet."""

    def __init__(self, tables: Store) -> None:
        self._tables = tables
        self._waiting: list[dict[str, Any]] = []

    def add(self, row: PartitionRow, event: str, **columns: Any) -> None:
        """Add an event. `row`: the partition after it."""
        copied = {name: getattr(row, name) for name in _COMMON_COLUMNS}
        self._waiting.append({"event": event, "source": "job", **copied, **columns})

    def write(self, batch: BatchId) -> None:
        """Write the events, if there are any."""
        if self._waiting:
            insert_rows(self._tables, PARTITION_EVENTS, self._waiting, batch)
            self._waiting.clear()
