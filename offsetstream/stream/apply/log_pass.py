"""One pass over the log, for a load or a large batch: tasks reduce the records to the last of each key, and write the
commits.

Spark gets only one row for each key, and the records that are not commits. If they are few, they come to the driver
with the reports of the tasks: in a process that has just started, another Spark job for them would take longer.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from offsetstream.codec.decoding import DECODED_SCHEMA
from offsetstream.coordinator.reduction import COMMIT_KEY_TYPES
from offsetstream.stream.decode import as_few_tasks, few_tasks, in_coordinator_partition
from offsetstream.stream.state import size
from offsetstream.stream.state.size import Records, collect
from offsetstream.tables.arrow_rows import partition_numbers
from offsetstream.tables.files import NewFile, TaskWriter
from offsetstream.tables.filters import NO_FILTERS, Filters
from offsetstream.tables.names import COMMITS, RECORD_TABLES, RECORDS, UNDECODABLE
from offsetstream.tables.record_rows import decode_on_driver, with_history_columns
from offsetstream.tables.size import SMALL_BYTES, Size

_RAW = ("offsets_partition", "record_offset", "record_timestamp", "key", "value")
_KEPT = ("value_offset", "tombstone_offset")
_KIND, _CELL, _OTHER, _REPORT, _COLLECTED = "kind", "cell", "other", "report", "collected_with_report"
_OWN = (_KIND, _REPORT, _COLLECTED)
_TEXTS = ("group_id", "topic", "metadata", "key_json", "value_json", "value_decoded_json", "key_bytes", "value")
_UTC = pa.timestamp("us", "UTC")
_SCHEMA = pa.schema(
    [
        ("offsets_partition", pa.int32()),
        ("record_offset", pa.int64()),
        ("record_timestamp", _UTC),
        *DECODED_SCHEMA,
        ("in_coordinator_partition", pa.bool_()),
        ("commit_timestamp", _UTC),
        ("expire_timestamp", _UTC),
        ("key_bytes", pa.binary()),
        ("value", pa.binary()),
        ("value_size", pa.int32()),
        *((name, pa.int64()) for name in _KEPT),
        (_KIND, pa.string()),
        (_REPORT, pa.string()),
        (_COLLECTED, pa.bool_()),
    ]
)
# Limits for the kept rows: after so many rows they are reduced again, after so many bytes they are emitted.
_MOST_ROWS, _MOST_BYTES = 500_000, 64 << 20
_COLLECTED_BYTES = SMALL_BYTES // 4  # of all tasks together


@dataclass(frozen=True)
class CommitHistory:
    """Where tasks write the history of commits, with the log ids and the greatest written offsets by partition.

    Without a `writer`, tasks cannot write files: the commits go to Spark with the other records.
    """

    writer: TaskWriter | None
    log_ids: Mapping[int, int]
    written: Mapping[int, int]


@dataclass(frozen=True)
class Part:
    """Decoded records of one kind, with their number and the bytes of their texts.

    `brought`: the same records on the driver, if all of them came with the reports.
    """

    decoded: DataFrame
    size: Size
    brought: pa.Table | None

    def fetched(self) -> Records:
        """Return the records: on the driver if they fit into its memory, else in Spark."""
        if self.brought is not None:
            return self.brought
        return collect(self.decoded) if self.size.fits_driver else self.decoded


@dataclass(frozen=True)
class LogPass:
    """The result of a pass.

    - `cells`: the last record of each key, with the offsets of the key's last value and last tombstone.
    - `others`: undecodable records. With a history, also records other than commits, or all if tasks write no files.
    - `files`: files of the history that tasks wrote, to be committed.
    - `shares`: the share of each offsets partition.
    - `records`: the number of records for each history table, without filtered ones.
    - `written`: the number of commits by offsets partition that tasks did not write because the history has them.
    """

    cells: Part
    others: Part
    files: list[NewFile]
    shares: dict[int, size.Share]
    records: dict[str, int]
    written: Counter[int]

    @property
    def size(self) -> size.BatchSize:
        """The size of the batch."""
        return size.BatchSize(self.records, self.cells.size.bytes + self.others.size.bytes)


@contextmanager
def pass_over(
    raw: DataFrame,
    history: CommitHistory | None,
    placed_by: int | None,
    filters: Filters = NO_FILTERS,
) -> Iterator[LogPass]:
    """Pass over raw records in log order. `placed_by`: see `in_coordinator_partition`.

    Filtered records only count in `shares`. Small results are collected on the driver.
    """
    brought_bytes = _COLLECTED_BYTES // few_tasks(raw.sparkSession)

    def work(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return reduce_log(batches, history, placed_by, filters, brought_bytes)

    rows = as_few_tasks(raw).mapInArrow(work, from_arrow_schema(_SCHEMA)).persist(size.ON_DISK)
    try:
        collected = rows.where(_COLLECTED).toArrow()
        reports = [json.loads(report) for report in collected[_REPORT].drop_null().to_pylist()]
        shares: dict[int, size.Share] = {}
        for report in reports:
            size.add_shares(shares, {number: size.Share(*share) for number, *share in report["shares"]})
        cells, others = (_part(rows, collected, kind, reports) for kind in (_CELL, _OTHER))
        files = [NewFile(**report["file"]) for report in reports if report["file"] is not None]
        records = {table: sum(report["tables"].get(table, 0) for report in reports) for table in RECORD_TABLES}
        written = Counter[int]()
        for report in reports:
            written.update(dict(report["written"]))
        yield LogPass(cells, others, files, shares, records, written)
    finally:
        rows.unpersist()


def _part(rows: DataFrame, collected: pa.Table, kind: str, reports: Iterable[Mapping[str, Any]]) -> Part:
    count, length = (sum(report[figure].get(kind, 0) for report in reports) for figure in ("rows", "bytes"))
    brought = collected.filter(pc.equal(collected[_KIND], kind)).drop_columns(_OWN)
    is_complete = brought.num_rows == count
    return Part(rows.where(F.col(_KIND) == kind).drop(*_OWN), Size(count, length), brought if is_complete else None)


def reduce_log(
    batches: Iterable[pa.RecordBatch],
    history: CommitHistory | None,
    placed_by: int | None,
    filters: Filters = NO_FILTERS,
    brought_bytes: int = 0,
) -> Iterator[pa.RecordBatch]:
    """Yield the results of one task for its raw records: decoded records of each kind, then a report.

    The first rows, up to `brought_bytes`, are marked to be collected on the driver with the report.
    """
    return _Worker(history, placed_by, filters, brought_bytes).work(batches)


@dataclass
class _Worker:
    """One task of a pass."""

    history: CommitHistory | None
    placed_by: int | None
    filters: Filters
    brought_bytes: int
    _kept: list[pa.Table] = field(default_factory=list)
    _shares: dict[int, size.Share] = field(default_factory=dict)
    _tables: Counter[str] = field(default_factory=Counter)
    _written: Counter[int] = field(default_factory=Counter)
    _rows: Counter[str] = field(default_factory=Counter)
    _bytes: Counter[str] = field(default_factory=Counter)

    def work(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            raw = pa.Table.from_batches([batch]).select(_RAW)
            size.add_shares(self._shares, size.by_partition(raw))
            raw, decoded = self._without_filtered(raw, decode_on_driver(raw))
            good = pc.is_null(decoded["error"])
            is_commit = pc.and_(good, pc.is_in(decoded["key_type"], pa.array(COMMIT_KEY_TYPES, pa.int16())))
            goods, commits = (pc.sum(each, min_count=0).as_py() for each in (good, is_commit))
            self._tables.update({COMMITS: commits, RECORDS: goods - commits, UNDECODABLE: decoded.num_rows - goods})
            if self.history is None:
                yield from self._emit(decoded.filter(pc.invert(good)), _OTHER)
            elif self.history.writer is None:
                yield from self._emit(decoded, _OTHER)
            else:
                yield from self._emit(decoded.filter(pc.invert(is_commit)), _OTHER)
                self._write(self.history.writer, self.history, _where(decoded, is_commit))
            self._keep(_where(raw, good))
            if sum(part.nbytes for part in self._kept) > _MOST_BYTES:
                yield from self._emit_cells()
        yield from self._emit_cells()
        yield self._report()

    def _without_filtered(self, raw: pa.Table, decoded: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Remove the filtered records, and count them."""
        if not self.filters:
            return raw, decoded
        filtered = self.filters.filtered(decoded)
        for number, share in size.by_partition(raw.filter(filtered)).items():
            size.add_shares(self._shares, {number: size.Share(0, None, share.records)})
        kept = pc.invert(filtered)
        return _where(raw, kept), _where(decoded, kept)

    def _write(self, writer: TaskWriter, history: CommitHistory, commits: pa.Table) -> None:
        rows = with_history_columns(COMMITS, commits)
        rows = rows.append_column("log_id", partition_numbers(commits, history.log_ids, 0))
        if history.written:
            is_new = pc.greater(rows["record_offset"], partition_numbers(rows, history.written, -1))
            rows, all_rows = _where(rows, is_new), rows
            if rows.num_rows < all_rows.num_rows:
                old = size.by_partition(all_rows.filter(pc.invert(is_new)))
                self._written.update({number: share.records for number, share in old.items()})
        writer.write(rows)

    def _keep(self, raw: pa.Table) -> None:
        if raw.num_rows:
            self._kept.append(_last_of_keys(_with_own_offsets(raw)))
        if sum(part.num_rows for part in self._kept) > _MOST_ROWS:
            self._kept = [_last_of_keys(pa.concat_tables(self._kept))]

    def _emit_cells(self) -> Iterator[pa.RecordBatch]:
        if self._kept:
            yield from self._emit(decode_on_driver(_last_of_keys(pa.concat_tables(self._kept))), _CELL)
            self._kept.clear()

    def _emit(self, decoded: pa.Table, kind: str) -> Iterator[pa.RecordBatch]:
        if not decoded.num_rows:
            return
        columns = {name: decoded[name] for name in decoded.column_names}
        groups = decoded["group_id"].combine_chunks()
        columns["in_coordinator_partition"] = in_coordinator_partition(
            groups, decoded["offsets_partition"].combine_chunks(), self.placed_by
        )
        is_good = pc.is_null(decoded["error"])
        for name in ("key_bytes", "value"):  # kept only for undecodable records
            columns[name] = pc.if_else(is_good, pa.scalar(None, pa.binary()), decoded[name])
        rows = _rows(pa.table(columns), kind, is_collected=decoded.nbytes <= self.brought_bytes)
        self.brought_bytes -= decoded.nbytes
        self._rows[kind] += rows.num_rows
        self._bytes[kind] += sum(rows[name].nbytes for name in _TEXTS)
        yield from rows.to_batches()

    def _report(self) -> pa.RecordBatch:
        new = self.history and self.history.writer and self.history.writer.close()
        counts = {"rows": self._rows, "bytes": self._bytes, "tables": self._tables}
        shares = [(number, *astuple(share)) for number, share in self._shares.items()]
        written = list(self._written.items())
        report = json.dumps({**counts, "shares": shares, "written": written, "file": new and asdict(new)})
        return _rows(pa.table({_REPORT: [report]}), _REPORT, is_collected=True).to_batches()[0]


def _with_own_offsets(raw: pa.Table) -> pa.Table:
    is_tombstone, offset, none = pc.is_null(raw["value"]), raw["record_offset"], pa.scalar(None, pa.int64())
    raw = raw.append_column("value_offset", pc.if_else(is_tombstone, none, offset))
    return raw.append_column("tombstone_offset", pc.if_else(is_tombstone, offset, none))


def _last_of_keys(rows: pa.Table) -> pa.Table:
    """Reduce rows in log order to the last of each key."""
    numbered = rows.select(["offsets_partition", "key", *_KEPT]).append_column("at", pa.array(np.arange(rows.num_rows)))
    found = numbered.group_by(["offsets_partition", "key"], use_threads=False)
    found = found.aggregate([(name, "max") for name in ("at", *_KEPT)])
    last = rows.select(_RAW).take(found["at_max"])
    for name in _KEPT:
        last = last.append_column(name, found[f"{name}_max"])
    return last


def _where(rows: pa.Table, condition: Any) -> pa.Table:
    return rows if pc.all(condition).as_py() else rows.filter(condition)


def _rows(rows: pa.Table, kind: str, *, is_collected: bool) -> pa.Table:
    columns = [
        rows[name].cast(type_) if name in rows.column_names else pa.nulls(rows.num_rows, type_)
        for name, type_ in zip(_SCHEMA.names, _SCHEMA.types, strict=True)
    ]
    for name, value in ((_KIND, kind), (_COLLECTED, is_collected)):
        columns[_SCHEMA.get_field_index(name)] = pa.repeat(pa.scalar(value), rows.num_rows)
    return pa.table(columns, schema=_SCHEMA)
