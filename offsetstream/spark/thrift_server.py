"""Spark's Thrift server, which speaks JDBC and ODBC, in a session of ours: tables and views for tools of BI."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from offsetstream.embedded.artifacts import classpath, resolve
from offsetstream.spark.local import local_session
from offsetstream.spark.session import connectors

_METASTORE = "spark.hadoop.hive.metastore.uris"
# Its catalog is made anew at each start, in memory: nothing of an older version's stays.
_IN_MEMORY = {
    "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:offsetstream;create=true",
    "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
    "spark.hadoop.hive.metastore.schema.verification": "false",
}


def serving_session(
    host: str, port: int, warehouse: Path, master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a session whose Thrift server, once `serve` starts it, listens at the host and port.

    `warehouse` is where Spark puts what a user creates beside the tables; `conf` wins over all of it, and may name a
    metastore. Raises EnvironmentNotReadyError as of `local_session`.
    """
    given = dict(conf or {})
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.driver.extraClassPath": classpath(_delta_jars()),
        "spark.hadoop.hive.server2.thrift.bind.host": host,
        "spark.hadoop.hive.server2.thrift.port": str(port),
        "spark.hadoop.hive.server2.transport.mode": "binary",
        "spark.sql.warehouse.dir": str(warehouse),
    }
    return local_session(master, settings | ({} if _METASTORE in given else _IN_MEMORY) | given)


def _delta_jars() -> list[Path]:
    """Return what is to be on the class path itself: the server's threads do not see what spark.jars bring.

    Of the rest Spark has its own releases, which must stay before those that the connectors name.
    """
    return [jar for jar in resolve(connectors()) if jar.name.startswith(("delta-", "unitycatalog-"))]


def serve(spark: SparkSession, registration: Iterable[str]) -> None:
    """Run the statements, and then start the server; it ends with the session. Raises whatever Spark raises."""
    for statement in registration:
        spark.sql(statement)
    java: Any = spark.sparkContext._jvm
    session: Any = spark._jsparkSession
    java.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2.startWithContext(session.sqlContext())
