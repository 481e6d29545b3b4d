"""The state tables: what the coordinators hold in memory after the records that were applied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from offsetstream.stream.state.positions import number_of
from offsetstream.stream.state.spark_cells import group_facts, last_of_cell
from offsetstream.stream.state.spark_derive import derived_groups
from offsetstream.tables.merge import DELETED, of_partitions
from offsetstream.tables.schema import load_schema
from offsetstream.tables.spark_sessions import in_parallel
from offsetstream.tables.transaction import BatchId
from offsetstream.tables.write import TableWriter

GROUP = ["offsets_partition", "group_id"]


class SparkStateWriter:
    """Applies reduced records to the state tables.

    ``coordinator`` is new or classic (reference 5.9); ``topic_names`` has the names of topic ids, and may grow.
    """

    def __init__(
        self, writer: TableWriter, coordinator: str, log_ids: Mapping[int, int], topic_names: Mapping[str, str]
    ) -> None:
        self._writer = writer
        self._coordinator = coordinator
        self._log_ids = log_ids
        self._topic_names = topic_names

    def apply(self, decoded: DataFrame, batch: BatchId, *, loaded: Sequence[int] = (), has_cells: bool = True) -> None:
        """Apply decoded records, which have ``value_offset`` and ``tombstone_offset``.

        ``has_cells``: whether there is any record but offset commits among them.

        ``loaded`` names the partitions of which ``decoded`` has everything: what it does not name there is deleted,
        and all their groups are derived anew. Without it only the groups that the records touch are.
        """
        replace_where = of_partitions(loaded) if loaded else None
        placed = decoded.drop("key", "value", "key_bytes").withColumn("log_id", number_of(self._log_ids, 0))
        commits, cells = (frame.persist() for frame in last_of_cell(placed))
        merge = partial(self._writer.merge, batch=batch, newer_only=True, replace_where=replace_where)
        steps = [partial(merge, "committed_offsets", _committed_offsets(commits))]
        if has_cells:
            steps.append(partial(merge, "group_cells", _group_cells(cells)))
        in_parallel(self._writer.spark, steps)
        self._derive(commits, cells, batch, replace_where)
        commits.unpersist()
        cells.unpersist()

    def _derive(self, commits: DataFrame, cells: DataFrame, batch: BatchId, replace_where: str | None) -> None:
        touched = self._touched_groups(commits, cells, is_load=replace_where is not None).persist()
        if replace_where or not touched.isEmpty():
            here = F.broadcast(touched.select(*GROUP))
            live = self._writer.rows("group_cells").join(here, GROUP, "left_semi")
            placed = touched.withColumn("log_id", number_of(self._log_ids, 0))
            with derived_groups(placed, live, self._topic_names) as derived:
                steps = [
                    partial(self._replace, table, rows, here, batch, replace_where) for table, rows in derived.items()
                ]
                in_parallel(self._writer.spark, steps)
        touched.unpersist()

    def _touched_groups(self, commits: DataFrame, cells: DataFrame, *, is_load: bool) -> DataFrame:
        facts = group_facts(commits, cells)
        if is_load:
            touched = facts.withColumn("existed", F.lit(False))
        else:
            groups = self._writer.rows("groups").select(*GROUP, F.lit(True).alias("existed"))
            touched = facts.join(groups, GROUP, "left").fillna({"existed": False})
            touched = touched.where(F.col("is_touched") | ~F.col("existed"))
        if self._coordinator == "classic":
            offsets = self._writer.rows("committed_offsets").select(*GROUP, F.lit(True).alias("exists")).distinct()
            return touched.join(offsets, GROUP, "left").fillna({"exists": False})
        return touched.withColumn("exists", _new_coordinator_keeps())

    def _replace(
        self, table: str, rows: DataFrame, groups: DataFrame, batch: BatchId, replace_where: str | None
    ) -> None:
        if replace_where is None:
            present = self._writer.rows(table).join(groups, GROUP, "left_semi").alias("present")
            same = [F.col(f"present.{name}").eqNullSafe(F.col(f"rows.{name}")) for name in load_schema(table).key]
            gone = present.join(rows.alias("rows"), same, "left_anti").withColumn(DELETED, F.lit(True))
            rows = rows.withColumn(DELETED, F.lit(False)).unionByName(gone)
        self._writer.merge(table, rows, batch, replace_where=replace_where)


def _committed_offsets(commits: DataFrame) -> DataFrame:
    return commits.withColumns(
        {"key_version": F.col("key_type"), "value_bytes": F.col("value_size"), DELETED: F.col("is_tombstone")}
    )


def _group_cells(cells: DataFrame) -> DataFrame:
    return cells.withColumns({"value_bytes": F.col("value_size"), DELETED: F.col("is_tombstone")})


def _new_coordinator_keeps() -> Column:
    # Any commit makes a simple group, only the group's own tombstone ends it (reference 5.3, 5.5, 5.10 item 5).
    committed_since = F.col("commit_offset") > F.coalesce("group_tombstone_offset", F.lit(-1))
    kept = F.col("existed") & F.col("group_tombstone_offset").isNull()
    return F.coalesce(committed_since, F.lit(False)) | kept
