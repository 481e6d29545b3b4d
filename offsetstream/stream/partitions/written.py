"""How far the tables have records of the present logs: beyond what is applied, after a write that was interrupted."""

from __future__ import annotations

from collections.abc import Mapping

from offsetstream.stream.partitions.partition_row import PartitionRow
from offsetstream.tables.ledger import greatest_offsets
from offsetstream.tables.names import CELL_TABLES, RECORD_TABLES
from offsetstream.tables.store import Store
from offsetstream.tables.tally import Log


class WrittenOffsets:
    """Reads the tables when it is asked first, and then only after `forget`; `rows` are those of the book."""

    def __init__(self, tables: Store, rows: Mapping[int, PartitionRow]) -> None:
        self._tables = tables
        self._rows = rows
        self._greatest: dict[Log, int] | None = None

    def forget(self) -> None:
        """Note that something may be written now."""
        self._greatest = None

    def ends(self) -> dict[int, int]:
        """Return where the records that the tables have end (exclusive), of partitions where it is beyond the applied.

        A tombstone leaves no row in the state tables, so without a history it may be told too low.
        """
        if self._greatest is None:
            self._greatest = self._read()
        ends = {number: self._greatest.get((number, row.log_id), -1) + 1 for number, row in self._rows.items()}
        return {number: end for number, end in ends.items() if end > self._rows[number].applied}

    def _read(self) -> dict[Log, int]:
        above = min((row.applied for row in self._rows.values()), default=0)
        found: dict[Log, int] = {}
        # Without a history the cells are all there is of what was written.
        for table in (*RECORD_TABLES, *CELL_TABLES):
            for log, offset in greatest_offsets(self._tables, table, above).items():
                found[log] = max(offset, found.get(log, -1))
        return found
