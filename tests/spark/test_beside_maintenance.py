"""The job writes while users run maintenance in Spark: no row is lost or doubled, whoever commits first."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from offsetstream.errors import TablesError
from offsetstream.tables.catalog_store import CatalogStore
from offsetstream.tables.catalog_store.snapshot import CatalogSnapshot
from offsetstream.tables.create import create_tables
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import load_schema
from offsetstream.tables.sql import in_partitions
from offsetstream.tables.store import Snapshot, Store
from offsetstream.tables.task_rows import TaskRows
from offsetstream.tables.transaction import BatchId
from offsetstream.tables.write import TableWriter
from testkit.processes import offsetstream
from testkit.tables import append_rows, new_tables
from testkit.task_rows import from_tasks
from tests.unit.tables.small_writes import WRITES, Between

pytestmark = pytest.mark.long

OPTIMIZES = ["OPTIMIZE {table}", "OPTIMIZE {table} ZORDER BY ({column})"]
OF_EACH_KIND = [write for write in WRITES if write.name in {"merge", "append", "events", "book"}]


@pytest.mark.usefixtures("metastore")  # which SQL on a path asks, too
@pytest.mark.parametrize("sql", OPTIMIZES)
def test_driver_writes_survive_concurrent_spark_writes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    for write in OF_EACH_KIND:
        tables = new_tables(tmp_path / write.name)
        write.prepare(tables)
        path = tables.table(write.table)
        column = next(name for name in load_schema(write.table).column_names if name != "written_day")
        beat = sql.format(table=f"delta.`{path}`", column=column)
        with monkeypatch.context() as patch:
            between = Between(patch, path, lambda beat=beat: spark.sql(beat).collect())  # type: ignore[misc]
            write.run(tables)
        assert between.happened, write.name
        assert write.found(tables) == write.expected, write.name


def new_groups(tables: Store, *partitions: int) -> dict[str, TaskRows]:
    rows = [{"offsets_partition": number, "group_id": "g", "state": "new"} for number in partitions]
    parts = [pa.Table.from_pylist(rows, schema=load_schema("groups").arrow)]
    return {"groups": from_tasks(tables, "groups", parts, BatchId(1, -1))}


def test_batches_in_a_catalog_with_optimize_between_them(catalog: CatalogStore, spark: SparkSession) -> None:
    """As predictive optimization does to managed tables: its commit has none of our notes."""
    writes = [write for write in OF_EACH_KIND if write.name in {"merge", "append"}]
    create_tables(catalog, "cluster-1", "new", [write.table for write in writes])
    for write in writes:
        write.prepare(catalog)
        table = catalog.sql_name(write.table)
        for _ in range(2):  # the second time, the batch was already there before the OPTIMIZE
            spark.sql(f"OPTIMIZE {table}").collect()
            write.run(catalog)
            assert write.found(catalog) == write.expected, write.name
        assert "OPTIMIZE" in operations(spark, table), write.name


def operations(spark: SparkSession, table: str) -> list[str]:
    """Return the operations on a table, the newest first."""
    return [row["operation"] for row in spark.sql(f"DESCRIBE HISTORY {table}").collect()]


def test_a_catalogs_rows_are_replaced_while_its_table_is_optimized(
    catalog: CatalogStore, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_tables(catalog, "cluster-1", "new", ["groups"])
    WRITES[0].prepare(catalog)
    table = catalog.sql_name("groups")
    path = spark.sql(f"DESCRIBE DETAIL {table}").collect()[0]["location"].removeprefix("file:")
    (name, rows), opened = *new_groups(catalog, 1, 2).items(), list[Snapshot]()

    def open_and_optimize(_: CatalogStore, name: str) -> Snapshot:
        opened.append(CatalogSnapshot(catalog.tables, name))
        if len(opened) == 1:
            DeltaTable(path).optimize.z_order(["group_id"])
        return opened[-1]

    with monkeypatch.context() as patch:
        patch.setattr(CatalogStore, "open", open_and_optimize)
        TableWriter(spark, catalog).replace({name: rows}, BatchId(1, -1), in_partitions([1, 2]))
    assert operations(spark, table)[0] != "OPTIMIZE"
    assert "OPTIMIZE" in operations(spark, table)
    assert WRITES[0].found(catalog) == WRITES[0].expected


FEATURES = {
    "deletion vectors": "SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    "column mapping": "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    "row tracking": "SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
    "in-commit timestamps": "SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
}


@pytest.mark.parametrize("feature", FEATURES)
def test_the_commands_that_a_refusal_names_undo_it(spark: SparkSession, tables: PathStore, feature: str) -> None:
    write = WRITES[0]
    write.prepare(tables)
    spark.sql(f"ALTER TABLE delta.`{tables.table('groups')}` {FEATURES[feature]}")
    with pytest.raises(TablesError, match="undo them in Spark SQL with ") as told:
        create_tables(tables, "cluster-1", "new")
    for command in str(told.value).split("undo them in Spark SQL with ")[1].split("; "):
        spark.sql(command)
    create_tables(tables, "cluster-1", "new")
    write.run(tables)
    assert write.found(tables) == write.expected


def test_look_ups_do_not_show_what_a_deletion_vector_deleted(spark: SparkSession, tables: PathStore) -> None:
    """A user who enables deletion vectors while no job runs can still query."""
    place = {"offsets_partition": 0, "topic": "orders", "in_coordinator_partition": True, "committed_offset": 5}
    found = [place | {"group_id": group, "partition": number} for group in ("a", "b") for number in range(4)]
    append_rows(Path(tables.root), "committed_offsets", found)
    table = f"delta.`{tables.table('committed_offsets')}`"
    spark.sql(f"ALTER TABLE {table} {FEATURES['deletion vectors']}")
    spark.sql(f"DELETE FROM {table} WHERE group_id = 'b' AND partition < 3")  # noqa: S608 - the test's own
    assert any("deletionVector" in log.read_text() for log in Path(tables.table("committed_offsets")).rglob("*.json"))
    columns, left = ["group_id", "partition"], [("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", 3)]
    lookup = Lookup(tables)
    assert sorted(tuple(row.values()) for row in lookup.rows("committed_offsets", columns)) == left
    assert [tuple(row.values()) for row in lookup.stream("committed_offsets", columns, order=columns)] == left
    assert lookup.rows("committed_offsets", columns, {"group_id": ["b"]}) == [{"group_id": "b", "partition": 3}]
    for output, lines in (("csv", 6), ("text", 6)):
        shown = offsetstream("offsets", "list", "--tables", tables.root, "--output", output)
        assert (shown.returncode, len(shown.stdout.splitlines())) == (0, lines), shown.stderr
