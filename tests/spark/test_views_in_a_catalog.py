"""`offsetstream views create`: another session finds the views, over tables at paths and in a catalog."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from offsetstream.tables.catalog_store import CatalogStore
from offsetstream.tables.create import create_tables
from offsetstream.tables.store import Store
from offsetstream.views.files import all_views
from offsetstream.views.spark import create_views
from testkit.metastore import Metastore
from testkit.tables import append_rows, new_tables

NOW = datetime.now(UTC)
COMMIT = {
    "offsets_partition": 1,
    "group_id": "billing",
    "topic": "orders",
    "partition": 0,
    "committed_offset": 41,
    "in_coordinator_partition": True,
}
END = {
    "topic": "orders",
    "partition": 0,
    "log_start_offset": 0,
    "high_watermark": 50,
    "sampled_at": NOW,
    "changed_at": NOW,
}


def require_views(spark: SparkSession, store: Store, database: str) -> None:
    wanted = {view.name for view in all_views().values() if not view.is_at}
    assert set(create_views(store, database, spark)) == wanted
    assert set(create_views(store, database, spark)) == wanted  # a second run changes nothing
    assert {row.viewName for row in spark.sql(f"SHOW VIEWS IN {database}").collect() if not row.isTemporary} == wanted
    for view in wanted:
        assert spark.table(f"{database}.{view}").columns == list(all_views()[view].column_names)
    comments = {row.col_name: row.comment for row in spark.sql(f"DESCRIBE {database}.lag").collect()}
    assert comments == {column.name: column.comment for column in all_views()["lag"].columns}


@pytest.mark.nightly
def test_views_over_tables_at_paths(spark: SparkSession, metastore: Metastore, tmp_path: Path) -> None:
    store = new_tables(tmp_path / "it's a `folder`")
    append_rows(Path(store.root), "committed_offsets", [COMMIT])
    append_rows(Path(store.root), "topic_partitions", [END])
    database = f"views_{tmp_path.name}".replace("-", "_")
    require_views(spark, store, database)
    other = spark.newSession()
    other.conf.set("spark.sql.shuffle.partitions", "1")
    lag = other.table(f"{database}.lag").select("group_id", "lag", "reason")
    assert [tuple(row) for row in lag.collect()] == [("billing", 9, None)]


@pytest.mark.long
@pytest.mark.nightly
def test_views_next_to_the_tables_of_a_catalog(spark: SparkSession, catalog: CatalogStore) -> None:
    create_tables(catalog, "cluster-1", "new")
    require_views(spark, catalog, catalog.name)
    assert spark.table(f"{catalog.name}.lag").count() == 0


def test_a_catalog_in_memory_is_refused(tmp_path: Path) -> None:
    new_tables(tmp_path)
    command = [
        sys.executable,
        "-m",
        "offsetstream",
        "views",
        "create",
        "--tables",
        str(tmp_path),
        "--database",
        "kafka",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "this session's catalog is in memory" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "thresholds").exists()
