"""Start Spark for a command whose tables are in a catalog, which only Spark can reach."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from offsetstream.cli.options import shared_option
from offsetstream.settings import schema
from offsetstream.settings.databricks import is_databricks
from offsetstream.tables.location import store_at
from offsetstream.tables.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--master` and `--conf`, the arguments of `own_spark`."""
    return shared_option("master", schema.MASTER)(shared_option("conf", schema.CONF)(command))


@contextmanager
def open_with_spark(tables: str, session: Callable[[], AbstractContextManager[SparkSession]]) -> Iterator[Store]:
    """Yield the tables, in a Spark session if they need one."""
    store = store_at(tables)
    if store.needs_spark:
        with session() as spark:
            yield store.read_by(spark)
    else:
        yield store


@contextmanager
def own_spark(master: str | None, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yield a Spark session: one that starts and stops here, or the session of Databricks."""
    from offsetstream.spark.failures import explain_ended_java  # noqa: PLC0415 - slow: PySpark
    from offsetstream.spark.local import LocalSpark  # noqa: PLC0415
    from offsetstream.spark.session import launchers_session  # noqa: PLC0415

    session = launchers_session() if is_databricks() else LocalSpark(master, conf).running()
    with explain_ended_java(), session as spark:
        yield spark
