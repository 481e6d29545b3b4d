"""Counts of a history's rows, with a checksum: how the ledger, tasks and checks compare what was written.

A checksum is the sum of a hash of each row, so it is the same in any row order, machine and version. The columns of the
writer and the day (`SIGNATURE`) do not count. Null adds nothing, so a column that a later version adds does not change
the checksums of existing rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, reduce
from hashlib import blake2b
from operator import add
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.tables.schema import HISTORY_DAY, SIGNATURE, TableSchema, load_schema

Hashes = npt.NDArray[np.uint64]
MODULUS = 1 << 63  # sums are modulo this, so that a BIGINT holds them
_SLICE_BYTES = 1 << 20  # bytes of text that are hashed together: each needs eight more bytes of memory
_BASE = 0x9E3779B97F4A7C15  # odd, so that its powers have inverses
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


def row_hashes(rows: pa.Table, schema: TableSchema) -> Hashes:
    """Return a hash of each row of a table; a column that `rows` lack counts as null."""
    names = [name for name in schema.column_names if name in rows.column_names and name not in SIGNATURE]
    found = [_column_hashes(rows[name].cast(schema.arrow.field(name).type), name) for name in names]
    return _mixed(reduce(add, found, np.zeros(rows.num_rows, np.uint64)))


def _column_hashes(column: pa.ChunkedArray, name: str) -> Hashes:
    salt = np.frombuffer(blake2b(name.encode(), digest_size=8).digest(), "<u8")
    chunks = [_value_hashes(chunk) for chunk in column.chunks]
    values = np.concatenate(chunks) if chunks else np.zeros(0, np.uint64)
    is_there = column.is_valid().to_numpy().astype(np.uint64)
    found: Hashes = _mixed(values ^ salt) * is_there
    return found


def _value_hashes(column: pa.Array) -> Hashes:
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return _text_hashes(column)
    if not pa.types.is_boolean(column.type):  # no column that counts is a date
        column = column.cast(pa.int64())
    filled = pc.fill_null(column, False if pa.types.is_boolean(column.type) else 0)
    numbers: Hashes = filled.to_numpy(zero_copy_only=False).astype(np.uint64)
    return numbers


def _text_hashes(column: pa.Array) -> Hashes:
    """Return a polynomial hash of each text's bytes.

    The polynomial is computed over the bytes of many texts together. Each text's part is then divided by the power at
    its first byte, so that the hash does not depend on where the text lies.
    """
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1].astype(
        np.int64
    )
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)
    found = np.zeros(len(column), np.uint64)
    for first, last in _slices(offsets):
        start, end = offsets[first], offsets[last]
        if end - start > _SLICE_BYTES:  # a single long text
            found[first] = np.frombuffer(blake2b(data[start:end].tobytes(), digest_size=8).digest(), "<u8")[0]
            continue
        sums = np.zeros(end - start + 1, np.uint64)
        np.cumsum((data[start:end].astype(np.uint64) + np.uint64(1)) * _powers(_BASE)[: end - start], out=sums[1:])
        places = offsets[first : last + 1] - start
        own = (sums[places[1:]] - sums[places[:-1]]) * _powers(pow(_BASE, -1, 1 << 64))[places[:-1]]
        found[first:last] = own + np.diff(places).astype(np.uint64)
    return found


def _slices(offsets: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield ranges of texts that have at most `_SLICE_BYTES` together; a longer text is a range of its own."""
    first, count = 0, len(offsets) - 1
    while first < count:
        last = int(np.searchsorted(offsets, offsets[first] + _SLICE_BYTES, "right")) - 1
        last = min(max(last, first + 1), count)
        yield first, last
        first = last


@cache
def _powers(base: int) -> Hashes:
    powers = np.full(_SLICE_BYTES + 1, base, np.uint64)
    powers[0] = 1
    found: Hashes = np.multiply.accumulate(powers)
    return found


def _mixed(numbers: Hashes) -> Hashes:
    """Mix each number so that every bit affects all others (the finalizer of SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
