"""What the tests of this tier share: one local Spark session, and new tables for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from offsetstream.spark.session import local_session
from offsetstream.tables.create import create_tables
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.write import TableWriter


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = local_session("local[2]", {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))})
    yield session
    session.stop()


@pytest.fixture
def tables(tmp_path: Path) -> PathStore:
    return new_tables(tmp_path / "tables")


@pytest.fixture
def writer(spark: SparkSession, tables: PathStore) -> TableWriter:
    return TableWriter(spark, tables)


def new_tables(folder: Path) -> PathStore:
    tables = PathStore(str(folder))
    create_tables(tables, "cluster-1", "new")
    return tables
