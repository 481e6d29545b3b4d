"""What happens to offsets partitions, as it is told in `partition_events`."""

from __future__ import annotations

from typing import Any

from offsetstream.stream.partitions.partition_row import PartitionRow
from offsetstream.tables.names import PARTITION_EVENTS
from offsetstream.tables.small_tables import insert_rows
from offsetstream.tables.store import Store
from offsetstream.tables.transaction import BatchId

_OF_EVERY_EVENT = ("offsets_partition", "log_id", "load_id", "coordinator_id", "coordinator_epoch")


class PartitionEvents:
    """The events that wait to be written."""

    def __init__(self, tables: Store) -> None:
        self._tables = tables
        self._waiting: list[dict[str, Any]] = []

    def add(self, row: PartitionRow, event: str, **columns: Any) -> None:
        """Note what has just happened to the partition; `row` is as it is by now."""
        copied = {name: getattr(row, name) for name in _OF_EVERY_EVENT}
        self._waiting.append({"event": event, "source": "job", **copied, **columns})

    def write(self, batch: BatchId) -> None:
        """Write what waits, if anything does."""
        if self._waiting:
            insert_rows(self._tables, PARTITION_EVENTS, self._waiting, batch)
            self._waiting.clear()
