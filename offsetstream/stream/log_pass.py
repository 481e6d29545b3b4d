"""One pass over the log for a load: Python reduces the records to the last of each key, and writes the commits down.

What goes on to Spark are as many rows as there are keys, not records, and the few records that are no commits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from offsetstream.codec.decoding import decode_records
from offsetstream.coordinator.reduction import COMMIT_KEY_TYPES
from offsetstream.stream.decode import as_few_tasks
from offsetstream.stream.source import RAW_TYPE
from offsetstream.tables.arrow_rows import number_of, timestamps_of
from offsetstream.tables.files import FileWriter, NewFile

COMMITS = "offset_commits"
_TYPE = f"{RAW_TYPE}, value_offset BIGINT, tombstone_offset BIGINT, records BIGINT, kind STRING, file STRING"
_RAW = ("offsets_partition", "record_offset", "record_timestamp", "key", "value")
_KEPT = ("value_offset", "tombstone_offset", "records")
_KIND, _CELL, _OTHER, _FILE = "kind", "cell", "other", "file"
_SCHEMA = pa.schema(
    [
        ("offsets_partition", pa.int32()),
        ("record_offset", pa.int64()),
        ("record_timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        *((name, pa.int64()) for name in _KEPT),
        (_KIND, pa.string()),
        (_FILE, pa.string()),
    ]
)
# Of what is kept of each key: reduced again after so many rows, and given on after so many bytes.
_MOST_ROWS, _MOST_BYTES = 500_000, 64 << 20


@dataclass(frozen=True)
class CommitHistory:
    """Where the history of commits goes; the logs' ids, and what it has of them already, by offsets partition."""

    writer: FileWriter
    log_ids: Mapping[int, int]
    written: Mapping[int, int]


@dataclass(frozen=True)
class LogPass:
    """What came of a pass; the frame is persisted by who made it."""

    rows: DataFrame

    def cells(self) -> DataFrame:
        """Return the last raw record of each key, with ``value_offset``, ``tombstone_offset`` and ``records``."""
        return self.rows.where(F.col(_KIND) == _CELL).drop(_KIND, _FILE)

    def others(self) -> DataFrame:
        """Return the raw records that cannot be decoded and, where a history is kept, those that are no commits."""
        return self.rows.where(F.col(_KIND) == _OTHER).select(*_RAW)

    def files(self) -> list[NewFile]:
        """Return the files of history that were written, and are to be committed."""
        rows = self.rows.where(F.col(_KIND) == _FILE).select(_FILE).collect()
        return [NewFile(**json.loads(row[_FILE])) for row in rows]

    def records(self) -> dict[int, int]:
        """Return the number of records of each offsets partition."""
        counted = self.rows.where(F.col("records") > 0).groupBy("offsets_partition").agg(F.sum("records").alias("n"))
        return {row["offsets_partition"]: row["n"] for row in counted.collect()}


def pass_over(raw: DataFrame, history: CommitHistory | None) -> LogPass:
    """Return the pass over raw records, which must be in log order; it happens with the first action on it."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return reduce_log(batches, history)

    return LogPass(as_few_tasks(raw).mapInArrow(work, _TYPE))


def reduce_log(batches: Iterable[pa.RecordBatch], history: CommitHistory | None) -> Iterator[pa.RecordBatch]:
    """Yield what one task makes of its raw records: rows of each kind, as :data:`_TYPE`."""
    return _Worker(history).work(batches)


class _Worker:
    """One task's part of a pass."""

    def __init__(self, history: CommitHistory | None) -> None:
        self._history = history
        self._kept: list[pa.Table] = []

    def work(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            raw = pa.Table.from_batches([batch]).select(_RAW)
            decoded = pa.Table.from_batches([decode_records(raw["key"], raw["value"])])
            good = pc.is_null(decoded["error"])
            is_commit = pc.and_(good, pc.is_in(decoded["key_type"], pa.array(COMMIT_KEY_TYPES, pa.int16())))
            other = pc.invert(good if self._history is None else is_commit)
            if pc.any(other).as_py():
                counted = pc.cast(pc.invert(good), pa.int64()).filter(other)
                yield from _rows(raw.filter(other).append_column("records", counted), _OTHER)
            if self._history is not None:
                self._write(self._history, _filtered(raw, is_commit), _filtered(decoded, is_commit))
            self._keep(_filtered(raw, good))
            if sum(part.nbytes for part in self._kept) > _MOST_BYTES:
                yield from self._cells()
        yield from self._cells()
        if self._history is not None and (new := self._history.writer.close()) is not None:
            yield from _rows(pa.table({_FILE: [json.dumps(asdict(new))]}), _FILE)

    def _write(self, history: CommitHistory, raw: pa.Table, decoded: pa.Table) -> None:
        columns = {name: raw[name] for name in ("offsets_partition", "record_offset", "record_timestamp")}
        columns |= {name: decoded[name] for name in decoded.column_names if name not in columns}
        columns |= {
            "log_id": number_of(raw, history.log_ids, 0),
            "key_version": decoded["key_type"],
            "value_bytes": pc.binary_length(raw["value"]),
            "commit_timestamp": timestamps_of(decoded["commit_timestamp_ms"]),
            "expire_timestamp": timestamps_of(decoded["expire_timestamp_ms"]),
        }
        rows = pa.table(columns)
        if history.written:
            rows = rows.filter(pc.greater(raw["record_offset"], number_of(raw, history.written, -1)))
        history.writer.write(rows)

    def _keep(self, raw: pa.Table) -> None:
        if not raw.num_rows:
            return
        is_tombstone, offset, none = pc.is_null(raw["value"]), raw["record_offset"], pa.scalar(None, pa.int64())
        own = {
            "value_offset": pc.if_else(is_tombstone, none, offset),
            "tombstone_offset": pc.if_else(is_tombstone, offset, none),
            "records": pa.repeat(pa.scalar(1, pa.int64()), raw.num_rows),
        }
        for name, column in own.items():
            raw = raw.append_column(name, column)
        self._kept.append(_last_of_keys(raw))
        if sum(part.num_rows for part in self._kept) > _MOST_ROWS:
            self._kept = [_last_of_keys(pa.concat_tables(self._kept))]

    def _cells(self) -> Iterator[pa.RecordBatch]:
        if self._kept:
            yield from _rows(_last_of_keys(pa.concat_tables(self._kept)), _CELL)
            self._kept.clear()


def _last_of_keys(rows: pa.Table) -> pa.Table:
    """Reduce rows in log order to the last of each key."""
    numbered = rows.select(["offsets_partition", "key", *_KEPT]).append_column("at", pa.array(np.arange(rows.num_rows)))
    kept = [("value_offset", "max"), ("tombstone_offset", "max"), ("records", "sum")]
    found = numbered.group_by(["offsets_partition", "key"], use_threads=False).aggregate([("at", "max"), *kept])
    last = rows.select(_RAW).take(found["at_max"])
    for name, how in kept:
        last = last.append_column(name, found[f"{name}_{how}"])
    return last


def _filtered(rows: pa.Table, where: Any) -> pa.Table:
    return rows if pc.all(where).as_py() else rows.filter(where)


def _rows(rows: pa.Table, kind: str) -> Iterator[pa.RecordBatch]:
    columns = [
        rows[name].cast(type_) if name in rows.column_names else pa.nulls(rows.num_rows, type_)
        for name, type_ in zip(_SCHEMA.names, _SCHEMA.types, strict=True)
    ]
    columns[_SCHEMA.get_field_index(_KIND)] = pa.repeat(pa.scalar(kind), rows.num_rows)
    yield from pa.table(columns, schema=_SCHEMA).to_batches()
