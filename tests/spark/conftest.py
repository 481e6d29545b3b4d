"""What the tests of this tier share: one local Spark session, and new tables for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from offsetstream.spark.session import local_session
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.write import TableWriter


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = local_session("local[2]", {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))})
    yield session
    session.stop()


@pytest.fixture
def writer(spark: SparkSession, tables: PathStore) -> TableWriter:
    return TableWriter(spark, tables)
