"""The catalog store fulfils the contract of all stores, on a Hive metastore."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from offsetstream import open_tables
from offsetstream.errors import ConflictError, NoTableError, UnknownNameError
from offsetstream.tables.catalog_store import CatalogStore
from offsetstream.tables.catalog_store.commits import APPENDS, CHANGES, Stamp, TableState, WriterSessions
from offsetstream.tables.create import create_tables
from offsetstream.tables.lease import Lease
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import all_schemas, load_schema
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.store import Transaction
from tests.stores.contract import *  # noqa: F403 - the tests

pytestmark = pytest.mark.nightly

SETTINGS = [
    "spark.databricks.delta.write.txnAppId",
    "spark.databricks.delta.write.txnVersion",
    "spark.databricks.delta.commitInfo.userMetadata",
]


@pytest.fixture
def empty(catalog: CatalogStore) -> CatalogStore:
    return catalog


# Defaults that sessions and workspaces set under spark.databricks.delta.properties.defaults.
DEFAULTS = {
    "enableDeletionVectors": "true",
    "columnMapping.mode": "name",
    "appendOnly": "true",
    "enableRowTracking": "true",
    "enableInCommitTimestamps": "true",
    "enableTypeWidening": "true",
    "enableChangeDataFeed": "true",
    "checkpointPolicy": "v2",
    "minReaderVersion": "3",
    "minWriterVersion": "7",
}


def test_new_tables_ignore_feature_defaults(catalog: CatalogStore, spark: SparkSession) -> None:
    names = {name: f"spark.databricks.delta.properties.defaults.{name}" for name in DEFAULTS}
    try:
        for name, value in DEFAULTS.items():
            spark.conf.set(names[name], value)
        spark.sql(f"CREATE SCHEMA {catalog.name}")
        spark.sql(f"CREATE TABLE {catalog.name}.another (id BIGINT) USING delta")
        create_tables(catalog, "cluster-1", "new")
    finally:
        for name in names.values():
            spark.conf.unset(name)
    found = {name: protocol_of(spark, catalog.sql_name(name)) for name in all_schemas()}
    assert found == dict.fromkeys(all_schemas(), (1, 2, {"appendOnly", "invariants"}))
    assert protocol_of(spark, f"{catalog.name}.another")[:2] == (3, 7)  # Spark reads these settings


def protocol_of(spark: SparkSession, table: str) -> tuple[int, int, set[str]]:
    """Return reader and writer versions, and the features that Delta counts for them."""
    (row,) = spark.sql(f"DESCRIBE DETAIL {table}").collect()
    return row.minReaderVersion, row.minWriterVersion, set(row.tableFeatures)


def test_new_tables_show_the_meaning_of_their_columns(catalog: CatalogStore, spark: SparkSession) -> None:
    create_tables(catalog, "cluster-1", "new", ["groups"])
    shown = {field.name: field.metadata["comment"] for field in spark.table(catalog.sql_name("groups")).schema}
    assert shown == {column.name: column.comment for column in load_schema("groups").columns}


def test_a_tables_session_is_like_the_jobs_and_stamps_only_during_a_write(spark: SparkSession) -> None:
    sessions = WriterSessions(spark)
    session = sessions.of("groups", CHANGES).spark
    for name in ("spark.sql.session.timeZone", "spark.sql.shuffle.partitions"):
        assert session.conf.get(name) == spark.conf.get(name)
    stamp = Stamp.after(TableState(3, {CHANGES: 4}), CHANGES, [Transaction("app", 5)])
    with pytest.raises(ValueError, match="of the merge"), stamp.on(session):
        assert [session.conf.get(name) for name in SETTINGS[:2]] == [CHANGES, "5"]
        raise ValueError("of the merge")
    assert [each.conf.get(name, None) for each in (spark, session) for name in SETTINGS] == [None] * 6
    assert (sessions.of("groups", CHANGES).spark, sessions.of("groups", APPENDS).spark is session) == (session, False)


def test_a_program_reads_catalog_tables_by_its_session(catalog: CatalogStore, spark: SparkSession) -> None:
    create_tables(catalog, "cluster-1", "new", ["groups", "committed_offsets", "offsets_partitions"])
    assert open_tables(catalog.name, spark).groups().num_rows == 0
    table = catalog.open("groups")
    row = {"offsets_partition": 1, "group_id": "g", "in_coordinator_partition": True}
    table.append([pa.Table.from_pylist([row], schema=load_schema("groups").arrow)])
    assert open_tables(catalog.name, spark).groups(group="g").to_pylist()[0].items() >= row.items()
    with pytest.raises(UnknownNameError, match="group 'h' is not there"):
        open_tables(catalog.name, spark).groups(group="h")


def test_a_table_without_notes_is_read_again_before_a_write(catalog: CatalogStore) -> None:
    """As after a week in which only others committed."""
    schema = load_schema("groups")
    create_tables(catalog, "cluster-1", "new", ["groups"])
    row = pa.Table.from_pylist([{"offsets_partition": 1, "group_id": "g"}], schema=schema.arrow)
    table = catalog.open("groups")
    table.append([row], Transaction("app", 5))
    stale = catalog.open("groups")
    for each in (table, stale):
        each.state = TableState(each.version, {})
    table.append([row])
    with pytest.raises(ConflictError):
        stale.append([row])
    again = catalog.open("groups")
    assert len(read_rows(again)) == 2
    again.append([row])
    assert (len(read_rows(again)), again.transaction_version("app")) == (3, None)


def test_a_registered_table_whose_commits_have_no_notes_can_be_written(
    catalog: CatalogStore, spark: SparkSession, tmp_path: Path
) -> None:
    """The tables of a folder are registered in the catalog unchanged: their commits have none of our notes."""
    create_tables(PathStore(str(tmp_path)), "cluster-1", "new", ["groups", "job_lease"])
    spark.sql(f"CREATE SCHEMA {catalog.name}")
    for name in ("groups", "job_lease"):
        spark.sql(f"CREATE TABLE {catalog.sql_name(name)} USING delta LOCATION '{tmp_path / name}'")
    create_tables(catalog, "cluster-1", "new", ["groups", "job_lease"])
    lease = Lease.acquire(catalog)
    lease.heartbeat()
    lease.release()


def test_a_job_opens_a_table_as_its_own_last_commit_left_it(catalog: CatalogStore, spark: SparkSession) -> None:
    create_tables(catalog, "cluster-1", "new", ["groups"])
    job, another, sql = catalog.for_job(), catalog.for_job(), catalog.sql_name("groups")
    add_group(job, 1)
    spark.sql(f"INSERT INTO {sql} (offsets_partition, group_id) VALUES (2, 'by hand')")  # noqa: S608 - our own name
    stale = job.open("groups")
    assert (stale.version, catalog.open("groups").version) == (1, 2)
    assert {row["offsets_partition"] for row in read_rows(stale)} == {1, 2}  # rows are read anew
    add_group(job, 3)  # no conflict: the row by hand carries no number
    assert job.open("groups").version == 3
    add_group(another, 4)
    with pytest.raises(ConflictError):
        add_group(job, 5)
    add_group(job, 5)
    assert {row["offsets_partition"] for row in read_rows(catalog.open("groups"))} == {1, 2, 3, 4, 5}


def test_a_job_looks_again_for_a_table_that_is_gone(catalog: CatalogStore, spark: SparkSession) -> None:
    create_tables(catalog, "cluster-1", "new", ["groups"])
    job = catalog.for_job()
    add_group(job, 1)
    spark.sql(f"DROP TABLE {catalog.sql_name('groups')}")
    with pytest.raises(NoTableError):
        add_group(job, 2)
    assert job.opened("groups") is None
    create_tables(job, "cluster-1", "new", ["groups"])
    add_group(job, 2)
    assert {row["offsets_partition"] for row in read_rows(job.open("groups"))} == {2}


def add_group(store: CatalogStore, partition: int) -> None:
    row = pa.Table.from_pylist([{"offsets_partition": partition, "group_id": "g"}], schema=load_schema("groups").arrow)
    store.open("groups").append([row])
