"""The history tables: every record that was read, once, in log order."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from offsetstream.coordinator.reduction import COMMIT_KEY_TYPES
from offsetstream.stream.decode import is_commit
from offsetstream.stream.log_pass import COMMITS, CommitHistory, LogPass
from offsetstream.stream.positions import number_of
from offsetstream.tables.arrow_rows import append_rows, is_null, renamed, side_by_side
from offsetstream.tables.arrow_rows import number_of as number_of_arrow
from offsetstream.tables.files import FileWriter, append_files
from offsetstream.tables.transaction import BatchId, in_parallel
from offsetstream.tables.write import TableWriter

UNDECODABLE = "undecodable_records"
RECORD_TABLES = ("offset_commits", "group_records", UNDECODABLE)


def history_positions(writer: TableWriter, table: str, log_ids: Mapping[int, int], above: int) -> dict[int, int]:
    """Return the greatest record offset per partition that the history table has of the present logs.

    Only rows with an offset of at least ``above`` are looked at: what is below the applied positions is there.
    """
    greatest: dict[int, int] = {}
    reader = QueryBuilder().register("rows", DeltaTable(writer.tables.table(table)))
    query = (
        "SELECT offsets_partition, log_id, max(record_offset) AS record_offset FROM rows "  # noqa: S608 - our own SQL
        f"WHERE record_offset >= {above} GROUP BY offsets_partition, log_id"
    )
    for row in pa.table(reader.execute(query)).to_pylist():
        if row["log_id"] == log_ids.get(row["offsets_partition"], 0):
            greatest[row["offsets_partition"]] = row["record_offset"]
    return greatest


class History:
    """Appends decoded records to the history tables, each record once.

    ``written`` has, per table, the greatest record offset of each partition that was there when the job started: a
    job before this one may have ended between an append and the end of its batch. ``kept`` are the tables that are
    written at all; a record of another table is passed over.
    """

    def __init__(
        self,
        writer: TableWriter,
        log_ids: Mapping[int, int],
        written: Mapping[str, Mapping[int, int]],
        kept: Collection[str] = RECORD_TABLES,
    ) -> None:
        self._writer = writer
        self._log_ids = log_ids
        self._written = written
        self._kept = kept

    @classmethod
    def open(cls, writer: TableWriter, log_ids: Mapping[int, int], above: int, *, keeps_records: bool) -> History:
        """Return the history as the tables have it now (see :func:`history_positions`).

        Without ``keeps_records`` it is only of undecodable records, which are nowhere else.
        """
        kept = RECORD_TABLES if keeps_records else (UNDECODABLE,)
        return cls(writer, log_ids, {table: history_positions(writer, table, log_ids, above) for table in kept}, kept)

    @property
    def keeps_records(self) -> bool:
        """Whether records that can be decoded are kept."""
        return len(self._kept) > 1

    def append(self, decoded: DataFrame, batch: BatchId, tables: tuple[str, ...] = RECORD_TABLES) -> None:
        """Append the decoded records, each to its table, side by side."""
        kept = [table for table in tables if table in self._kept]
        in_parallel(self._writer.spark, [partial(self._append_to, table, decoded, batch) for table in kept])

    def append_small(self, decoded: pa.Table, batch: BatchId) -> None:
        """Append a small batch that the driver holds, as :meth:`append` does."""
        log_ids = decoded.append_column("log_id", number_of_arrow(decoded, self._log_ids, 0))
        side_by_side([partial(self._append_rows, table, log_ids, batch) for table in self._kept])

    def of_commits(self, batch: BatchId) -> CommitHistory:
        """Return where a pass over the log writes the commits, each that is not there yet."""
        writer = FileWriter(self._writer.tables, COMMITS, batch, datetime.now(UTC).date())
        return CommitHistory(writer, dict(self._log_ids), dict(self._written.get(COMMITS, {})))

    def append_passed(self, passed: LogPass, batch: BatchId) -> None:
        """Append what came of a pass over the log, which wrote the commits to files."""
        append_files(self._writer.tables, COMMITS, passed.files, batch)
        others = passed.others
        # Undecodable ones in one append: after a crash between two, the first one's positions would hide the other.
        if others.records and others.is_small:
            self.append_small(others.decoded.toArrow(), batch)
        elif others.records:
            self.append(others.decoded, batch, RECORD_TABLES[1:])

    def _append_rows(self, table: str, decoded: pa.Table, batch: BatchId) -> None:
        written = number_of_arrow(decoded, self._written.get(table, {}), -1)
        mine = pc.and_(_is_of(table, decoded), pc.greater(decoded["record_offset"], written))
        rows = renamed(decoded.filter(mine), _RENAMED[table])
        append_rows(self._writer.tables, table, rows, batch)

    def _append_to(self, table: str, decoded: DataFrame, batch: BatchId) -> None:
        rows = _ROWS[table](decoded).withColumn("log_id", number_of(self._log_ids, 0))
        new = F.col("record_offset") > number_of(self._written.get(table, {}), -1)
        self._writer.append(table, rows.where(new), batch)


def _is_of(table: str, decoded: pa.Table) -> pa.Array:
    good = is_null(decoded, "error")
    commit = pc.is_in(decoded["key_type"], pa.array(COMMIT_KEY_TYPES, decoded["key_type"].type))
    kinds = (pc.and_(good, commit), pc.and_(good, pc.invert(commit)), pc.invert(good))
    return dict(zip(RECORD_TABLES, kinds, strict=True))[table]


def _offset_commits(decoded: DataFrame) -> DataFrame:
    commits = decoded.where(F.col("error").isNull() & is_commit())
    return commits.withColumns({"key_version": F.col("key_type"), "value_bytes": F.col("value_size")})


def _group_records(decoded: DataFrame) -> DataFrame:
    return decoded.where(F.col("error").isNull() & ~is_commit()).withColumn("value_bytes", F.col("value_size"))


def _undecodable(decoded: DataFrame) -> DataFrame:
    undecodable = decoded.where(F.col("error").isNotNull())
    return undecodable.withColumns({"reason": F.col("error"), "value_bytes": F.col("value")})


_RENAMED = {
    "offset_commits": {"key_version": "key_type", "value_bytes": "value_size"},
    "group_records": {"value_bytes": "value_size"},
    "undecodable_records": {"reason": "error", "value_bytes": "value"},
}
_ROWS = {"offset_commits": _offset_commits, "group_records": _group_records, "undecodable_records": _undecodable}
