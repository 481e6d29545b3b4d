"""What the tests of this tier share: one local Spark session, and new tables for each test."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from offsetstream.spark.local import local_session
from offsetstream.tables.catalog_store import CatalogStore
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.write import TableWriter
from testkit.metastore import Metastore, metastore_in


@pytest.fixture(scope="session")
def idle_metastore(tmp_path_factory: pytest.TempPathFactory) -> Metastore:
    return metastore_in(tmp_path_factory.mktemp("metastore"))


@pytest.fixture(scope="session")
def metastore(idle_metastore: Metastore) -> Iterator[Metastore]:
    with idle_metastore.running():
        yield idle_metastore


@pytest.fixture(scope="session")
def spark(idle_metastore: Metastore) -> Iterator[SparkSession]:
    """The session of all tests, who use its catalog only with `metastore`."""
    session = local_session("local[2]", idle_metastore.conf)
    yield session
    session.stop()


@pytest.fixture
def catalog(spark: SparkSession, metastore: Metastore) -> CatalogStore:
    """A schema of the catalog, without tables."""
    return CatalogStore("spark_catalog", f"kafka_{uuid4().hex}").read_by(spark)


@pytest.fixture
def writer(spark: SparkSession, tables: PathStore) -> TableWriter:
    return TableWriter(spark, tables)
