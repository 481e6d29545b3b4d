"""`offsetstream views script` and `serve`: tables and views for tools of BI."""

from __future__ import annotations

import re
import tempfile
import threading
from pathlib import Path

import click

from offsetstream.cli.main import OneLineErrors
from offsetstream.cli.options import config_option, tables_option
from offsetstream.cli.own_spark import spark_options
from offsetstream.cli.signals import end_when_asked
from offsetstream.cli.tell import tell
from offsetstream.embedded.ports import LOOPBACK, check_port_is_free
from offsetstream.errors import OffsetstreamError, UsageError, first_line
from offsetstream.tables.location import store_at
from offsetstream.tables.store import Store

_DATABASE = re.compile(r"[\w-]+(\.[\w-]+)?")
_LOOK_SECONDS = 5.0


def database_of(store: Store, database: str | None) -> str:
    """Return where views go: what a user said, else the tables' own schema; UsageError if that is none."""
    place = database or (store.name if store.needs_spark else None)
    if place is None:
        raise UsageError("the tables are in a folder: say by --database in which schema of the catalog the views go")
    if not _DATABASE.fullmatch(place):
        raise UsageError(f"--database {place} is no schema of a catalog: name it as kafka, or as lake.kafka")
    return place


@click.command(
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream views script --tables tables --database kafka > register.sql
  offsetstream views script --tables s3a://lake/kafka --database lake.kafka""",
)
@config_option("views.script")
@tables_option
@click.option("--database", metavar="[CATALOG.]SCHEMA", help="Where they go; it is made if it is missing.")
def script(tables: str, database: str | None) -> None:
    """Print the SQL that registers all tables, and the views, in a catalog of Spark's: for beeline -f, or spark-sql -f.

    Tables stay where they lie; the table of thresholds, which the views read, is made where it is missing.
    """
    from offsetstream.views.register import registration  # noqa: PLC0415 - of Arrow, which --help does not need

    store = store_at(tables)
    found = list(registration(store, database_of(store, database)))  # all of it, or an error alone
    click.echo("".join(f"{statement};\n\n" for statement in found), nl=False)


@click.command(
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream views serve --tables tables
  offsetstream views serve --tables s3a://lake/kafka --port 10001 --conf spark.driver.memory=4g

There is no login: whoever reaches the port may do what this process may, also write.
docs/how-to/bi.md has the tools.""",
)
@config_option("views.serve")
@tables_option
@click.option("--database", default="kafka", show_default=True, metavar="SCHEMA", help="What the schema is called.")
@click.option("--host", default=LOOPBACK, show_default=True, help="Address to listen at; others reach it there.")
@click.option("--port", default=10_000, show_default=True, type=click.IntRange(1, 65_535), help="Port to listen at.")
@spark_options
def serve(tables: str, database: str, host: str, port: int, master: str | None, conf: dict[str, str]) -> None:
    """Serve tables and views over JDBC and ODBC, by Spark's Thrift server, until Ctrl-C or SIGTERM.

    They are registered anew at each start, in a catalog that ends with the server.
    """
    from offsetstream.views.register import registration  # noqa: PLC0415 - of Arrow, which --help does not need

    store = store_at(tables)
    statements = [] if store.needs_spark else list(registration(store, database_of(store, database)))
    check_port_is_free(port)
    ended = threading.Event()
    with end_when_asked(ended.set):
        _serve(statements, ended, f"jdbc:hive2://{host}:{port}/{database}", (host, port, master, conf))


def _serve(
    statements: list[str],
    ended: threading.Event,
    url: str,
    at: tuple[str, int, str | None, dict[str, str]],
) -> None:
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - PySpark takes a second
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from offsetstream.spark.failures import explain_lost_java  # noqa: PLC0415
    from offsetstream.spark.session import ending  # noqa: PLC0415
    from offsetstream.spark.thrift_server import serve, serving_session  # noqa: PLC0415

    host, port, master, conf = at
    with (
        tempfile.TemporaryDirectory(prefix="offsetstream-warehouse-") as warehouse,
        explain_lost_java(),
        ending(serving_session(host, port, Path(warehouse), master, conf)) as spark,
    ):
        try:
            serve(spark, statements)
        except (PySparkException, Py4JJavaError) as error:
            cause = error.java_exception if isinstance(error, Py4JJavaError) else error
            raise OffsetstreamError(f"the server does not start: {first_line(cause)}") from error
        tell(f"Serves {len(statements)} tables and views at {url}; Ctrl-C ends it")
        while not ended.wait(_LOOK_SECONDS):
            spark.sparkContext.defaultParallelism  # noqa: B018 - asks the JVM, which may have gone
