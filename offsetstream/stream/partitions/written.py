"""Where the tables have records beyond the applied offset, after an interrupted write."""

from __future__ import annotations

from collections.abc import Mapping

from offsetstream.stream.partitions.partition_row import PartitionRow
from offsetstream.tables.ledger import greatest_offsets
from offsetstream.tables.names import CELL_TABLES, RECORD_TABLES
from offsetstream.tables.store import Store
from offsetstream.tables.tally import Log


class WrittenOffsets:
    """Reads the tables at the first call, and again only after `forget`. `rows`: those of the book."""

    def __init__(self, tables: Store, rows: Mapping[int, PartitionRow]) -> None:
        self._tables = tables
        self._rows = rows
        self._greatest: dict[Log, int] | None = None

    def forget(self) -> None:
        """Drop what was read: something may be written now."""
        self._greatest = None

    def ends(self) -> dict[int, int]:
        """Return the end (exclusive) of the records in the tables, if it is beyond the applied offset.

        A tombstone leaves no row in the state tables. So the end may be too low if there is no history.
        """
        if self._greatest is None:
            self._greatest = self._read()
        ends = {number: self._greatest.get((number, row.log_id), -1) + 1 for number, row in self._rows.items()}
        return {number: end for number, end in ends.items() if end > self._rows[number].applied}

    def _read(self) -> dict[Log, int]:
        above = min((row.applied for row in self._rows.values()), default=0)
        found: dict[Log, int] = {}
        # Without a history, only the state tables show what was written.
        for table in (*RECORD_TABLES, *CELL_TABLES):
            for log, offset in greatest_offsets(self._tables, table, above).items():
                found[log] = max(offset, found.get(log, -1))
        return found
