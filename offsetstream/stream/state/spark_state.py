"""Write the state tables with Spark, for any number of records. Same steps as `driver_state.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from pyspark import inheritable_thread_target
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from offsetstream.coordinator.coordinator_kind import Coordinator
from offsetstream.stream.state.columns import partition_number, renamed
from offsetstream.stream.state.spark_cells import group_facts, last_record_per_cell
from offsetstream.stream.state.spark_derive import derived_groups
from offsetstream.tables.merge import DELETED
from offsetstream.tables.names import COMMITTED_OFFSETS, GROUP_CELLS, GROUPS
from offsetstream.tables.parallel import in_parallel
from offsetstream.tables.record_rows import CELLS_RENAMED
from offsetstream.tables.schema import load_schema
from offsetstream.tables.sql import in_partitions
from offsetstream.tables.transaction import BatchId
from offsetstream.tables.write import TableWriter

GROUP = ["offsets_partition", "group_id"]


class SparkStateWriter:
    """A `state_tables.StateWriter` for DataFrames.

    `coordinator`: new or classic (reference 5.9). `topic_names`: names by topic id; the mapping may grow.
    """

    def __init__(
        self, writer: TableWriter, coordinator: Coordinator, log_ids: Mapping[int, int], topic_names: Mapping[str, str]
    ) -> None:
        self._writer = writer
        self._is_classic = coordinator == "classic"
        self._log_ids = log_ids
        self._topic_names = topic_names
        self._in_thread = inheritable_thread_target(writer.spark)

    def apply(self, decoded: DataFrame, batch: BatchId, *, loaded: Sequence[int] = (), has_cells: bool = True) -> None:
        """Apply decoded records; see `StateWriter.apply`."""
        replace_where = in_partitions(loaded) if loaded else None
        commits, cells = (frame.persist() for frame in last_record_per_cell(self._placed(decoded)))
        merge = partial(self._merge, batch=batch, replace_where=replace_where)
        steps = [partial(merge, COMMITTED_OFFSETS, commits)]
        if has_cells:
            steps.append(partial(merge, GROUP_CELLS, cells))
        in_parallel(steps, self._in_thread)
        exists = self._exists(group_facts(commits, cells), is_load=bool(loaded)).persist()
        self._derive(exists, batch, replace_where)
        for frame in (commits, cells, exists):
            frame.unpersist()

    def _placed(self, decoded: DataFrame) -> DataFrame:
        rows = decoded.drop("key", "value", "key_bytes")
        return rows.selectExpr("*", f"{partition_number(self._log_ids, 0)} AS log_id")

    def _merge(self, table: str, rows: DataFrame, batch: BatchId, replace_where: str | None) -> None:
        source = renamed(rows, CELLS_RENAMED[table])
        self._writer.merge(table, source, batch, newer_only=True, replace_where=replace_where)

    def _exists(self, facts: DataFrame, *, is_load: bool) -> DataFrame:
        """Return, for each group whose rows may change, whether it exists for the coordinator even without a cell."""
        if is_load:
            touched = facts.withColumn("existed", F.lit(False))
        else:
            groups = self._writer.rows(GROUPS).select(*GROUP, F.lit(True).alias("existed"))
            touched = facts.join(groups, GROUP, "left").fillna({"existed": False})
            touched = touched.where(F.col("is_touched") | ~F.col("existed"))
        if self._is_classic:
            offsets = self._writer.rows(COMMITTED_OFFSETS).select(*GROUP, F.lit(True).alias("exists")).distinct()
            return touched.join(offsets, GROUP, "left").fillna({"exists": False})
        return touched.withColumn("exists", _new_coordinator_keeps())

    def _derive(self, exists: DataFrame, batch: BatchId, replace_where: str | None) -> None:
        if replace_where is None and exists.isEmpty():
            return
        groups = F.broadcast(exists.select(*GROUP))
        cells = self._writer.rows(GROUP_CELLS).join(groups, GROUP, "left_semi")
        with derived_groups(self._placed(exists), cells, self._topic_names) as derived:
            steps = [
                partial(self._replace, table, rows, groups, batch, replace_where) for table, rows in derived.items()
            ]
            in_parallel(steps, self._in_thread)

    def _replace(
        self, table: str, derived: DataFrame, groups: DataFrame, batch: BatchId, replace_where: str | None
    ) -> None:
        """Replace the rows of the groups with the derived rows."""
        rows = derived
        if replace_where is None:
            present = self._writer.rows(table).join(groups, GROUP, "left_semi").alias("present")
            same = [F.col(f"present.{name}").eqNullSafe(F.col(f"rows.{name}")) for name in load_schema(table).key]
            gone = present.join(rows.alias("rows"), same, "left_anti").withColumn(DELETED, F.lit(True))
            rows = rows.withColumn(DELETED, F.lit(False)).unionByName(gone)
        self._writer.merge(table, rows, batch, replace_where=replace_where)


def _new_coordinator_keeps() -> Column:
    # Any commit creates a simple group; only the group's own tombstone removes it (reference 5.3, 5.5, 5.10 item 5).
    committed_since = F.col("commit_offset") > F.coalesce("group_tombstone_offset", F.lit(-1))
    kept = F.col("existed") & F.col("group_tombstone_offset").isNull()
    return F.coalesce(committed_since, F.lit(False)) | kept
