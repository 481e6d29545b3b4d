"""Compare one history table with the records of the log: find those in both and those in only one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offsetstream.tables.checksum import row_hashes
from offsetstream.tables.schema import TableSchema

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_NO_TIME = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Records:
    """Records as parallel arrays: place, hash of the content, hash of the cell, tombstone flag and time.

    Times are microseconds since 1970. Rows are sorted by `partitions` and `offsets`; a place may occur twice.
    """

    partitions: Numbers
    offsets: Numbers
    hashes: npt.NDArray[np.uint64]
    cells: npt.NDArray[np.uint64]
    tombstones: Flags
    times: Numbers

    def __len__(self) -> int:
        return len(self.offsets)

    def where(self, flags: Flags) -> Records:
        """Return the records whose flag is set."""
        return Records(*(each[flags] for each in vars(self).values()))

    def places(self) -> Iterator[tuple[int, int]]:
        """Yield partition and offset of each."""
        yield from zip(self.partitions.tolist(), self.offsets.tolist(), strict=True)

    def limits(self, of_partition: dict[int, int]) -> Numbers:
        """Return the number of each record's partition; 0 if the partition has none."""
        most = max([*of_partition, int(self.partitions.max(initial=-1))], default=-1)
        numbers = np.zeros(most + 1, np.int64)
        for partition, number in of_partition.items():
            numbers[partition] = number
        return numbers[self.partitions]


@dataclass
class Gathered:
    """Collects rows of a history table, piece by piece."""

    schema: TableSchema
    _pieces: list[tuple[npt.NDArray[np.generic], ...]] = field(default_factory=list)

    def add(self, rows: pa.Table) -> None:
        """Add rows. Columns that the table does not have are ignored."""
        hashes = row_hashes(rows, self.schema)
        cells = row_hashes(rows.select(list(self.schema.cell)), self.schema) if self.schema.cell else hashes
        has_tombstones = "is_tombstone" in rows.column_names and bool(self.schema.cell)
        tombstones = (
            rows["is_tombstone"].fill_null(False).to_numpy() if has_tombstones else np.zeros(rows.num_rows, np.bool_)
        )
        places = (rows[name].to_numpy().astype(np.int64) for name in ("offsets_partition", "record_offset"))
        times = rows["record_timestamp"].cast(pa.int64()).fill_null(_NO_TIME).to_numpy()
        self._pieces.append((*places, hashes, cells, tombstones, times))

    def records(self) -> Records:
        """Return all of them, sorted by place."""
        kinds = (np.int64, np.int64, np.uint64, np.uint64, np.bool_, np.int64)
        empty = tuple(np.zeros(0, kind) for kind in kinds)
        columns = [np.concatenate(each) for each in zip(empty, *self._pieces, strict=True)]
        order = np.lexsort((columns[1], columns[0]))
        return Records(*(each[order] for each in columns))


@dataclass(frozen=True)
class Reconciled:
    """The result for one table. `missing`, `beyond` and `changed` should be empty.

    `both` counts records in the topic and in the table, `superseded` rows that the topic no longer has. `thinned` are
    in the topic only, and retention may have deleted them. `unclaimed` are in the table only, from before the time from
    which the history is complete.
    """

    both: int
    superseded: int
    unclaimed: int
    thinned: int
    missing: Records
    beyond: Records
    changed: Records


def reconcile(
    rows: Records,
    log: Records,
    applied: dict[int, int],
    log_starts: dict[int, int],
    thinned_below: dict[int, int],
    complete_from: Mapping[int, datetime],
    *,
    has_cells: bool,
) -> Reconciled:
    """Compare the rows of a table with the log's records, both below `applied`.

    A row that the log no longer has must be superseded: a newer row or record of its cell exists, or it is a tombstone
    (deleted after delete.retention.ms), or it is before the log's start. Rows without cells count as superseded. For a
    row from before `complete_from`, the superseding record may have come and gone while no job ran.
    Below the offset `thinned_below` of its partition, retention may have deleted a record that the rows lack.
    """
    is_old = log.offsets < log.limits(applied)
    log, tail = log.where(is_old), log.where(~is_old)
    rows = rows.where(rows.offsets < rows.limits(applied))
    ours, theirs = _places(rows), _places(log)
    in_log, in_rows = np.isin(ours, theirs), np.isin(theirs, ours)
    is_passed = ~_is_last_of_cell(rows) | rows.tombstones | np.isin(rows.cells, tail.cells)
    is_passed |= rows.offsets < rows.limits(log_starts)
    if not has_cells:
        is_passed[:] = True
        thinned_below = {}
    claimed_from = rows.limits({number: round(at.timestamp() * 1_000_000) for number, at in complete_from.items()})
    is_unclaimed = ~in_log & ~is_passed & (rows.times < claimed_from)
    may_be_thinned = _may_be_thinned(log, rows, thinned_below)
    at = np.searchsorted(theirs, ours[in_log])
    differs = np.zeros(len(rows), np.bool_)
    differs[in_log] = rows.hashes[in_log] != log.hashes[at]
    return Reconciled(
        both=int(in_log.sum()),
        superseded=int((~in_log & is_passed).sum()),
        unclaimed=int(is_unclaimed.sum()),
        thinned=int((~in_rows & may_be_thinned).sum()),
        missing=log.where(~in_rows & ~may_be_thinned),
        beyond=rows.where(~in_log & ~is_passed & ~is_unclaimed),
        changed=rows.where(differs),
    )


def _is_last_of_cell(rows: Records) -> Flags:
    """Return a flag per record: whether it is the last of its cell. A cell is in one partition."""
    order = np.lexsort((rows.offsets, rows.cells))
    cells = rows.cells[order]
    found = np.ones(len(rows), np.bool_)
    found[order[:-1]] = cells[1:] != cells[:-1]
    return found


def _may_be_thinned(log: Records, rows: Records, below: dict[int, int]) -> Flags:
    """Return a flag per record: whether retention may delete it. It is not the last of its cell there, or a tombstone.

    The superseding record need not be among the rows: it may be a tombstone that retention deleted, too.
    """
    is_there = log.offsets < log.limits(below)
    last = _last_of_cells(rows.where(rows.offsets < rows.limits(below)), log.where(is_there))
    return is_there & (log.tombstones | ~np.isin(_places(log), last))


def _last_of_cells(*records: Records) -> Numbers:
    """Return the place of the last record of each cell."""
    together = Records(*map(np.concatenate, zip(*(vars(each).values() for each in records), strict=True)))
    return _places(together.where(_is_last_of_cell(together)))


def _places(records: Records) -> Numbers:
    return joined(records.partitions, records.offsets)


def joined(partitions: Numbers, offsets: Numbers) -> Numbers:
    """Return each place as one sortable number: 15 bits of partition, 48 bits of offset."""
    places: Numbers = (partitions << np.int64(48)) | offsets
    return places
