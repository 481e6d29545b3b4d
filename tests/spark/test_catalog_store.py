"""The catalog store does what every store does, on a metastore of Hive's."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from offsetstream.tables.catalog_store import CatalogStore
from offsetstream.tables.catalog_store.commits import CHANGES, Stamp, TableState
from offsetstream.tables.catalog_store.sessions import WriterSessions
from offsetstream.tables.store import Transaction
from testkit.store_contract import *  # noqa: F403 - the tests

SETTINGS = [
    "spark.databricks.delta.write.txnAppId",
    "spark.databricks.delta.write.txnVersion",
    "spark.databricks.delta.commitInfo.userMetadata",
]


@pytest.fixture
def empty(catalog: CatalogStore) -> CatalogStore:
    return catalog


def test_a_tables_session_is_like_the_jobs_and_has_a_stamp_only_meanwhile(spark: SparkSession) -> None:
    sessions = WriterSessions(spark)
    session = sessions.of("groups")
    for name in ("spark.sql.session.timeZone", "spark.sql.shuffle.partitions"):
        assert session.conf.get(name) == spark.conf.get(name)
    stamp = Stamp.after(TableState(3, {CHANGES: 4}), CHANGES, [Transaction("app", 5)])
    with pytest.raises(ValueError, match="of the merge"), stamp.on(session):
        assert [session.conf.get(name) for name in SETTINGS[:2]] == [CHANGES, "5"]
        raise ValueError("of the merge")
    assert [each.conf.get(name, None) for each in (spark, session) for name in SETTINGS] == [None] * 6
    assert (sessions.of("groups"), sessions.of("topics") is session) == (session, False)
