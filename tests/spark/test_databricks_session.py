"""In Databricks' runtime the session belongs to the cluster: job and commands use it and do not stop it."""

from __future__ import annotations

from functools import partial

import pytest
from pyspark.sql import SparkSession

from offsetstream.cli.options import open_with_spark, own_spark
from offsetstream.cluster.java_client import kafka_classes
from offsetstream.errors import EnvironmentNotReadyError
from offsetstream.spark.session import launchers_session
from offsetstream.tables.catalog_store import CatalogStore
from offsetstream.tables.create import create_tables
from offsetstream.tables.lease import Lease, read_lease
from offsetstream.tables.names import JOB_LEASE

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def _runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")


def test_the_session_outlives_the_job(spark: SparkSession) -> None:
    with launchers_session() as session:
        assert session.sparkContext is spark.sparkContext
    assert spark.range(3).count() == 3


def test_a_command_reaches_catalog_tables_in_the_clusters_session(spark: SparkSession, catalog: CatalogStore) -> None:
    create_tables(catalog, "cluster-1", "new", [JOB_LEASE])
    lease = Lease.acquire(catalog)
    with open_with_spark(catalog.name, partial(own_spark, "local[7]", {})) as tables:
        row = read_lease(tables)
    assert row is not None
    assert row.owner == lease.owner
    assert spark.range(3).count() == 3


def test_a_runtime_without_kafka_classes_is_reported(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EnvironmentNotReadyError, match=r"no Kafka client at kafkashaded\.org\.apache\.kafka"):
        kafka_classes(spark.sparkContext._jvm)
    monkeypatch.delenv("DATABRICKS_RUNTIME_VERSION")
    assert kafka_classes(spark.sparkContext._jvm).common.utils.Time.SYSTEM.milliseconds() > 0
