"""One pass over the log, for a load or a large batch: tasks write the records to the history, and reduce them to the
last of each key.

Spark gets only one row for each key, and the group records, which the decoded history needs one by one. If they are
few, they come to the driver with the reports of the tasks: in a process that has just started, another Spark job for
them would take longer.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from offsetstream.codec.decoding import DECODED_SCHEMA
from offsetstream.coordinator.reduction import last_wins
from offsetstream.stream.records import (
    ON_DISK,
    Part,
    Share,
    add_shares,
    as_few_tasks,
    by_partition,
    few_tasks,
    in_coordinator_partition,
)
from offsetstream.tables.filters import NO_FILTERS, Filters
from offsetstream.tables.names import RECORD_TABLES, RECORDS
from offsetstream.tables.rows import (
    SMALL_BYTES,
    Size,
    by_table,
    decode_on_driver,
    partition_numbers,
    with_history_columns,
)
from offsetstream.tables.task_rows import PackingWriter, TaskRows

_RAW = ("offsets_partition", "record_offset", "record_timestamp", "key", "value")
_KEPT = ("value_offset", "tombstone_offset")
# The kind of a row: a cell, a group record, the name of the table for which it has packed rows, or a report.
_KIND, _CELL, _OF_GROUP, _REPORT = "kind", "cell", "group record", "report"
_ROWS, _COLLECTED = "rows", "collected_with_report"
_OWN = (_KIND, _ROWS, _REPORT, _COLLECTED)
_TEXTS = ("group_id", "topic", "metadata", "key_json", "value_json", "value_decoded_json")
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
        ("value_size", pa.int32()),
        *((name, pa.int64()) for name in _KEPT),
        (_KIND, pa.string()),
        (_ROWS, pa.binary()),
        (_REPORT, pa.string()),
        (_COLLECTED, pa.bool_()),
    ]
)
# Limits for the kept rows: after so many rows they are reduced again, after so many bytes they are emitted.
_MOST_ROWS, _MOST_BYTES = 500_000, 64 << 20
_COLLECTED_BYTES = SMALL_BYTES // 4  # of all tasks together
_MOST_HELD = 2 * SMALL_BYTES  # bytes of the results of one kind, in the driver's own pass
_DECODED = pa.schema([column for column in _SCHEMA if column.name not in _OWN])


class RowWriter(Protocol):
    """Takes rows of one table, as `TaskWriter` describes."""

    def write(self, rows: pa.Table) -> list[bytes]:
        """Take rows. Return them packed if Spark is to carry them."""

    def close(self) -> dict[str, Any]:
        """Finish, and return the report about the table."""


@dataclass(frozen=True)
class HistoryTarget:
    """The tables of the history that tasks write, with the log ids by offsets partition.

    `written`: by table and offsets partition, the greatest offset that the table has. `is_decoded`: whether the decoded
    history is written, too.
    """

    writers: Mapping[str, RowWriter]
    log_ids: Mapping[int, int]
    written: Mapping[str, Mapping[int, int]]
    is_decoded: bool


@dataclass(frozen=True)
class LogPass:
    """The result of a pass.

    - `cells`: the last record of each key, with the offsets of the key's last value and last tombstone.
    - `of_groups`: the group records, if the decoded history needs them.
    - `history`: by table, the rows of the history, to be committed.
    - `shares`: the share of each offsets partition.
    - `records`: the number of records for each history table, without filtered ones.
    - `written`: by table and offsets partition, the number of records that the history has already.
    """

    cells: Part
    of_groups: Part
    history: dict[str, TaskRows]
    shares: dict[int, Share]
    records: dict[str, int]
    written: dict[str, Counter[int]]


@contextmanager
def pass_over(
    raw: DataFrame,
    history: HistoryTarget,
    placed_by: int | None,
    filters: Filters = NO_FILTERS,
) -> Iterator[LogPass]:
    """Pass over raw records in log order. `placed_by`: see `in_coordinator_partition`.

    Filtered records only count in `shares`. Small results are collected on the driver.
    """
    brought_bytes = _COLLECTED_BYTES // few_tasks(raw.sparkSession)

    def work(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return reduce_log(batches, history, placed_by, filters, brought_bytes)

    rows = as_few_tasks(raw).mapInArrow(work, from_arrow_schema(_SCHEMA)).persist(ON_DISK)
    try:
        collected = rows.where(_COLLECTED).toArrow()
        reports = [json.loads(report) for report in collected[_REPORT].drop_null().to_pylist()]

        def of_kind(kind: str) -> Part:
            of_spark, measured = rows.where(F.col(_KIND) == kind).drop(*_OWN), _size(kind, reports)
            brought = collected.filter(pc.equal(collected[_KIND], kind)).drop_columns(_OWN)
            return Part(lambda: of_spark, measured, brought if brought.num_rows == measured.rows else None)

        packed = {table: rows.where(F.col(_KIND) == table) for table in history.writers}
        yield _passed(of_kind(_CELL), of_kind(_OF_GROUP), packed, reports)
    finally:
        rows.unpersist()


@contextmanager
def pass_on_driver(
    raw: Generator[pa.RecordBatch],
    spark: SparkSession,
    history: HistoryTarget,
    placed_by: int | None,
    filters: Filters = NO_FILTERS,
) -> Iterator[LogPass]:
    """Do the same as `pass_over` for raw records that come to this process, as the only task.

    Rows of the history are written in a thread. Results that are too many for the driver wait in files, for Spark.
    """
    folders = tempfile.TemporaryDirectory(prefix="offsetstream-pass-")
    with closing(raw), folders as folder, ThreadPoolExecutor(1) as beside:
        files = {name: each for name, each in history.writers.items() if not isinstance(each, PackingWriter)}
        written = {name: _WritesBeside(writer, beside) for name, writer in files.items()}
        history = replace(history, writers={**history.writers, **written})
        found = {kind: _Found(Path(folder) / kind) for kind in (_CELL, _OF_GROUP, *history.writers)}
        for batch in reduce_log(raw, history, placed_by, filters):
            rows = pa.Table.from_batches([batch])
            if (kind := rows[_KIND][0].as_py()) == _REPORT:
                reports = [json.loads(rows[_REPORT][0].as_py())]
            else:
                found[kind].add(rows.drop_columns(_OWN) if kind in (_CELL, _OF_GROUP) else rows.select([_ROWS]))
        packed = {table: found[table].in_spark(spark) if found[table].count else None for table in history.writers}
        cells, of_groups = (found[kind].part(spark, _size(kind, reports)) for kind in (_CELL, _OF_GROUP))
        yield _passed(cells, of_groups, packed, reports)


class _WritesBeside:
    """Takes rows like a writer of files, and has a thread write them."""

    def __init__(self, writer: RowWriter, thread: ThreadPoolExecutor) -> None:
        self._writer = writer
        self._thread = thread
        self._running: Future[list[bytes]] | None = None

    def write(self, rows: pa.Table) -> list[bytes]:
        """Have the rows written after those before, which must be done: so few wait in memory."""
        self._wait()
        self._running = self._thread.submit(self._writer.write, rows)
        return []

    def close(self) -> dict[str, Any]:
        """Finish, and return the report."""
        self._wait()
        return self._writer.close()

    def _wait(self) -> None:
        if self._running is not None:
            self._running.result()


class _Found:
    """Rows of one kind: on the driver, or from `_MOST_HELD` bytes on in a file."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._held: list[pa.Table] = []
        self._file: pq.ParquetWriter | None = None
        self.count = 0

    def add(self, rows: pa.Table) -> None:
        """Add rows, which all have the same columns."""
        self.count += rows.num_rows
        self._held.append(rows)
        if sum(each.nbytes for each in self._held) > _MOST_HELD:
            self._spill()

    def part(self, spark: SparkSession, size: Size) -> Part:
        """Return the rows, on the driver if they fit into its memory."""
        is_here = self._file is None and size.fits_driver
        brought = pa.concat_tables([_DECODED.empty_table(), *self._held]) if is_here else None
        return Part(partial(self.in_spark, spark), size, brought)

    def in_spark(self, spark: SparkSession) -> DataFrame:
        """Return the rows as a frame, which reads them from the file."""
        self._spill()
        if self._file is not None:
            self._file.close()
        return spark.read.parquet(str(self._place))

    def _spill(self) -> None:
        for rows in self._held:
            self._file = self._file or pq.ParquetWriter(self._place, rows.schema)
            self._file.write_table(rows)
        self._held = []


def _passed(
    cells: Part,
    of_groups: Part,
    history: Mapping[str, DataFrame | None],
    reports: Sequence[Mapping[str, Any]],
) -> LogPass:
    shares: dict[int, Share] = {}
    for report in reports:
        add_shares(shares, {number: Share(*share) for number, *share in report["shares"]})
    rows = {table: TaskRows.of([report["history"][table] for report in reports], of) for table, of in history.items()}
    records = {table: sum(report["records"].get(table, 0) for report in reports) for table in RECORD_TABLES}
    written = {table: Counter[int]() for table in RECORD_TABLES}
    for table, number, count in (each for report in reports for each in report["written"]):
        written[table][number] += count
    return LogPass(cells, of_groups, rows, shares, records, written)


def _size(kind: str, reports: Iterable[Mapping[str, Any]]) -> Size:
    return Size(*(sum(report[figure].get(kind, 0) for report in reports) for figure in ("rows", "bytes")))


def reduce_log(
    batches: Iterable[pa.RecordBatch],
    history: HistoryTarget,
    placed_by: int | None,
    filters: Filters = NO_FILTERS,
    brought_bytes: int = 0,
) -> Iterator[pa.RecordBatch]:
    """Yield the results of one task for its raw records: rows of each kind, then a report.

    The first decoded rows, up to `brought_bytes`, are marked to be collected on the driver with the report.
    """
    return _Worker(history, placed_by, filters, brought_bytes).work(batches)


@dataclass
class _Worker:
    """One task of a pass."""

    history: HistoryTarget
    placed_by: int | None
    filters: Filters
    brought_bytes: int
    _kept: list[pa.Table] = field(default_factory=list)
    _shares: dict[int, Share] = field(default_factory=dict)
    _records: Counter[str] = field(default_factory=Counter)
    _written: Counter[tuple[str, int]] = field(default_factory=Counter)
    _rows: Counter[str] = field(default_factory=Counter)
    _bytes: Counter[str] = field(default_factory=Counter)

    def work(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            raw = pa.Table.from_batches([batch]).select(_RAW)
            add_shares(self._shares, by_partition(raw))
            raw, decoded = self._without_filtered(raw, decode_on_driver(raw))
            good = pc.is_null(decoded["error"])
            of_tables = {table: _where(decoded, is_of) for table, is_of in by_table(decoded).items()}
            self._records.update({table: own.num_rows for table, own in of_tables.items()})
            for table in self.history.writers:
                yield from self._write(table, of_tables[table])
            if self.history.is_decoded:
                yield from self._emit(of_tables[RECORDS], _OF_GROUP)
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
        for number, share in by_partition(raw.filter(filtered)).items():
            add_shares(self._shares, {number: Share(0, None, share.records)})
        kept = pc.invert(filtered)
        return _where(raw, kept), _where(decoded, kept)

    def _write(self, table: str, decoded: pa.Table) -> Iterator[pa.RecordBatch]:
        rows = with_history_columns(table, decoded)
        rows = rows.append_column("log_id", partition_numbers(decoded, self.history.log_ids, 0))
        if written := self.history.written.get(table):
            is_new = pc.greater(rows["record_offset"], partition_numbers(rows, written, -1))
            rows, all_rows = _where(rows, is_new), rows
            if rows.num_rows < all_rows.num_rows:
                old = by_partition(all_rows.filter(pc.invert(is_new)))
                self._written.update({(table, number): share.records for number, share in old.items()})
        for packed in self.history.writers[table].write(rows):
            yield from _rows(pa.table({_ROWS: [packed]}), table, is_collected=False).to_batches()

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
        rows = _rows(pa.table(columns), kind, is_collected=decoded.nbytes <= self.brought_bytes)
        self.brought_bytes -= decoded.nbytes
        self._rows[kind] += rows.num_rows
        self._bytes[kind] += sum(rows[name].nbytes for name in _TEXTS)
        yield from rows.to_batches()

    def _report(self) -> pa.RecordBatch:
        report = {
            "rows": self._rows,
            "bytes": self._bytes,
            "records": self._records,
            "shares": [(number, *astuple(share)) for number, share in self._shares.items()],
            "written": [(*place, count) for place, count in self._written.items()],
            "history": {name: each.close() for name, each in self.history.writers.items()},
        }
        return _rows(pa.table({_REPORT: [json.dumps(report)]}), _REPORT, is_collected=True).to_batches()[0]


def _with_own_offsets(raw: pa.Table) -> pa.Table:
    is_tombstone, offset, none = pc.is_null(raw["value"]), raw["record_offset"], pa.scalar(None, pa.int64())
    raw = raw.append_column("value_offset", pc.if_else(is_tombstone, none, offset))
    return raw.append_column("tombstone_offset", pc.if_else(is_tombstone, offset, none))


def _last_of_keys(rows: pa.Table) -> pa.Table:
    return last_wins(rows, ("offsets_partition", "key"), _KEPT)


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
