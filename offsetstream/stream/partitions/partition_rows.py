"""The rows of `offsets_partitions` as the driver holds them, since only one job writes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from offsetstream.stream.partitions.partition_row import PartitionRow
from offsetstream.tables.names import OFFSETS_PARTITIONS, PARTITION_EVENTS
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.store import Store


class PartitionRows(Mapping[int, PartitionRow]):
    """The rows by partition, which give way to others by `set` and `learn` alone.

    `gone`: the rows of partitions that the topic has no longer. `has_news`: whether something was learned since the
    rows were written last.
    """

    def __init__(self, tables: Store, partitions: Iterable[int]) -> None:
        stored = map(PartitionRow.of, read_rows(tables.open(OFFSETS_PARTITIONS)))
        found = {row.offsets_partition: row for row in sorted(stored, key=_how_far)}  # of doubled ones the last counts
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
        """Give the row these columns, and return it as it is then; who calls it has them written."""
        self._rows[partition] = replace(self._rows[partition], **columns)
        return self._rows[partition]

    def learn(self, partition: int, **columns: Any) -> PartitionRow:
        """Give the row these columns, which are news if they differ; returns it as it is then."""
        before = self._rows[partition]
        self.has_news |= self.set(partition, **columns) != before
        return self._rows[partition]

    def _begin_logs_that_are_back(self, tables: Store) -> None:
        """Give a new log to partitions that were gone, and are there again."""
        new = {number for number, row in self._rows.items() if row.load_state is None}
        if not new or (len(new) == len(self._rows) and not self.gone):
            return  # all are known; or it is a first load, or a book that was lost
        last = "SELECT offsets_partition, max(log_id) AS log_id FROM rows GROUP BY offsets_partition"
        for seen in tables.open(PARTITION_EVENTS).query(last).read_all().to_pylist():
            if seen["offsets_partition"] in new:
                self.set(seen["offsets_partition"], log_id=seen["log_id"] + 1)


def _how_far(row: PartitionRow) -> tuple[int, int, int]:
    return row.log_id, row.loads, row.applied
