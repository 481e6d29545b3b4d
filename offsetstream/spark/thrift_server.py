"""Spark's Thrift server (JDBC and ODBC) in our session, which serves tables and views to BI tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from offsetstream.embedded.artifacts import classpath, resolve
from offsetstream.spark.local import local_session
from offsetstream.spark.session import connectors

_METASTORE = "spark.hadoop.hive.metastore.uris"
# The catalog is in memory and created at each start, so nothing of an older version remains.
_IN_MEMORY = {
    "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:offsetstream;create=true",
    "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
    "spark.hadoop.hive.metastore.schema.verification": "false",
}


def serving_session(
    host: str, port: int, warehouse: Path, master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a session whose Thrift server will listen at the host and port after `serve`.

    `warehouse` is the folder for other tables that users create. `conf` wins over our settings, and may name a
    metastore. Raises EnvironmentNotReadyError like `local_session`.
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
    """Return the jars for the class path, since the server's threads do not see those of spark.jars.

    Leaves out the other jars of the connectors: Spark has its own releases of them, which must win.
    """
    return [jar for jar in resolve(connectors()) if jar.name.startswith(("delta-", "unitycatalog-"))]


def serve(spark: SparkSession, registration: Iterable[str]) -> None:
    """Run the statements and start the server, which ends with the session. Raises what Spark raises."""
    for statement in registration:
        spark.sql(statement)
    java: Any = spark.sparkContext._jvm
    session: Any = spark._jsparkSession
    java.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2.startWithContext(session.sqlContext())
