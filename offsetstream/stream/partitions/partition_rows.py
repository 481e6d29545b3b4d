"""The rows of `offsets_partitions` in the driver's memory: only one job writes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from offsetstream.stream.partitions.partition_row import PartitionRow
from offsetstream.tables.names import OFFSETS_PARTITIONS, PARTITION_EVENTS
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.store import Store


class PartitionRows(Mapping[int, PartitionRow]):
    """The rows by partition. Only `set` and `learn` replace them.

    `gone`: the rows of partitions that the topic no longer has. `has_news`: whether `learn` has changed a row since the
    last write.
    """

    def __init__(self, tables: Store, partitions: Iterable[int]) -> None:
        stored = map(PartitionRow.of, read_rows(tables.open(OFFSETS_PARTITIONS)))
        found = {row.offsets_partition: row for row in sorted(stored, key=_position)}  # of duplicates the last counts
        self._rows = {number: found.pop(number, PartitionRow(number)) for number in partitions}
        self.gone = found
        self.has_news = True
        self._begin_logs_that_are_back(tables)

    def __getitem__(self, partition: int) -> PartitionRow:
        return self._rows[partition]

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def set(self, partition: int, **columns: Any) -> PartitionRow:
        """Set columns of a row, and return the new row. The caller writes the rows anyway."""
        self._rows[partition] = replace(self._rows[partition], **columns)
        return self._rows[partition]

    def learn(self, partition: int, **columns: Any) -> PartitionRow:
        """Set columns of a row, and return the new row. A change must be written: it sets `has_news`."""
        before = self._rows[partition]
        self.has_news |= self.set(partition, **columns) != before
        return self._rows[partition]

    def _begin_logs_that_are_back(self, tables: Store) -> None:
        """Start a new log for partitions that were gone and exist again."""
        new = {number for number, row in self._rows.items() if row.load_state is None}
        if not new or (len(new) == len(self._rows) and not self.gone):
            return  # all are known; or it is the first load; or the table was lost
        last = "SELECT offsets_partition, max(log_id) AS log_id FROM rows GROUP BY offsets_partition"
        for event in tables.open(PARTITION_EVENTS).query(last).read_all().to_pylist():
            if event["offsets_partition"] in new:
                self.set(event["offsets_partition"], log_id=event["log_id"] + 1)


def _position(row: PartitionRow) -> tuple[int, int, int]:
    return row.log_id, row.loads, row.applied
