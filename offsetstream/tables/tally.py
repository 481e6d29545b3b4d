"""Counts of history rows: number, sum of hashes and last offset, by log, day and batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from offsetstream.tables.checksum import MODULUS, row_hashes
from offsetstream.tables.schema import HISTORY_DAY, load_schema

Log = tuple[int, int]  # offsets partition and log id
LOG = ("offsets_partition", "log_id")
DAY = (*LOG, HISTORY_DAY)
BATCH = (*DAY, "checkpoint_id", "batch_id")


@dataclass(frozen=True)
class Entry:
    """A count of rows of one log, which one batch (None: any batch) wrote on one day; `day` is ISO 8601."""

    offsets_partition: int
    log_id: int
    day: str
    checkpoint_id: int | None
    batch_id: int | None
    rows: int
    checksum: int
    last_record_offset: int

    @property
    def log(self) -> Log:
        """The log that the rows come from."""
        return self.offsets_partition, self.log_id

    def __add__(self, other: Entry) -> Entry:
        """Return the sum of both."""
        return self._with(other, 1)

    def __sub__(self, other: Entry) -> Entry:
        """Return the rows without the other ones."""
        return self._with(other, -1)

    def _with(self, other: Entry, sign: int) -> Entry:
        last = max(self.last_record_offset, other.last_record_offset)
        checksum = (self.checksum + sign * other.checksum) % MODULUS
        return replace(self, rows=self.rows + sign * other.rows, checksum=checksum, last_record_offset=last)

    @property
    def without_batch(self) -> Entry:
        """The same entry without its batch."""
        return replace(self, checkpoint_id=None, batch_id=None)


class Tally:
    """Counts rows of a history, part by part."""

    def __init__(self, history: str) -> None:
        self._schema = load_schema(history)
        self._found: dict[tuple[Any, ...], Entry] = {}

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Count rows; they must have all columns of the history table."""
        rows = pa.table(rows)
        columns = {name: rows[name] for name in BATCH} | {
            "rows": pa.repeat(pa.scalar(1), rows.num_rows),
            "checksum": pa.array(row_hashes(rows, self._schema)),
            "last_record_offset": rows["record_offset"],
        }
        for entry in grouped(pa.table(columns), BATCH):
            key = (entry.log, entry.day, entry.checkpoint_id, entry.batch_id)
            self._found[key] = self._found[key] + entry if key in self._found else entry

    @property
    def entries(self) -> list[Entry]:
        """The counts by log, day and batch."""
        return list(self._found.values())


def grouped(rows: pa.Table, by: tuple[str, ...]) -> list[Entry]:
    """Sum rows of the ledger, grouped by the columns `by`; the checksums must be unsigned."""
    sums = [("rows", "sum"), ("checksum", "sum"), ("last_record_offset", "max")]  # checksums wrap modulo 2^64
    return [
        Entry(
            row["offsets_partition"],
            row["log_id"],
            str(row[HISTORY_DAY]),
            row.get("checkpoint_id"),
            row.get("batch_id"),
            row["rows_sum"],
            row["checksum_sum"] % MODULUS,
            row["last_record_offset_max"],
        )
        for row in rows.group_by(list(by)).aggregate(sums).to_pylist()
    ]


def by_day(entries: Iterable[Entry]) -> dict[tuple[Log, str], Entry]:
    """Sum entries of one history table by log and day."""
    found: dict[tuple[Log, str], Entry] = {}
    for each in entries:
        key = (each.log, each.day)
        found[key] = found[key] + each.without_batch if key in found else each.without_batch
    return found
