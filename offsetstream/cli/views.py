"""`offsetstream views`: list the SQL views, create them in a catalog, and serve tables and views to BI tools."""

from __future__ import annotations

import re
import tempfile
import threading
from pathlib import Path
from typing import Any

import click

from offsetstream.cli.failures import OneLineErrors
from offsetstream.cli.options import output_of, output_options, own_spark, spark_options, tables_option
from offsetstream.cli.output import Column
from offsetstream.cli.process import stop_on_signal
from offsetstream.cli.settings_file import config_option
from offsetstream.cli.text import print_line
from offsetstream.embedded.ports import LOOPBACK, check_port_is_free
from offsetstream.errors import OffsetstreamError, UsageError, first_line
from offsetstream.tables.location import store_at
from offsetstream.tables.store import Store
from offsetstream.views.files import all_views
from offsetstream.views.spark import create_views, registration, statements

_DATABASE = re.compile(r"[\w-]+(\.[\w-]+)?")
_CHECK_SECONDS = 5.0
_LIST = (Column("view", "VIEW", 24), Column("at", "AT"), Column("what", "WHAT"))


@click.group()
def views() -> None:
    """List the SQL views, create them in a catalog, or serve tables and views to BI tools."""


@views.command(
    "list",
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream views list
  offsetstream views list --output json""",
)
@output_options
def list_views(**options: Any) -> None:
    """List the views: what a row of each is, and which ones need a time (:at).

    docs/reference/views.md lists their columns. In Python: offsetstream.open_tables("tables").view("lag").
    """
    views = sorted((view for view in all_views().values() if not view.is_helper), key=lambda view: view.name)
    rows = [
        {"view": view.name, "at": ":at" if view.is_at else "", "what": view.comment.split(". ")[0]} for view in views
    ]
    output_of(options).table(_LIST, rows)


@views.command(
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream views create --tables tables --database kafka --dry-run
  offsetstream views create --tables s3a://lake/kafka --database kafka --conf spark.sql.catalogImplementation=hive
  offsetstream views create --tables lake.kafka_offsets

Only a persistent catalog keeps views, such as a Hive metastore or Unity Catalog. Run this again after an upgrade.""",
)
@config_option("views.create")
@tables_option
@click.option(
    "--database",
    metavar="[CATALOG.]SCHEMA",
    help="Create the views in this schema; create it if missing (default: the schema of the tables).",
)
@click.option("--dry-run", is_flag=True, help="Only print the SQL; do not start Spark.")
@spark_options
def create(tables: str, database: str | None, dry_run: bool, master: str | None, conf: dict[str, str]) -> None:
    """Create or replace the views in a catalog."""
    store = store_at(tables)
    place = database_of(store, database)
    if dry_run:
        click.echo("".join(f"{statement};\n\n" for statement in statements(store, place)), nl=False)
        return
    _create(store, place, master, conf)


def _create(store: Store, database: str, master: str | None, conf: dict[str, str]) -> None:
    from pyspark.errors import PySparkException

    with own_spark(master, conf) as spark:
        try:
            created = create_views(store.read_by(spark), database, spark)
        except PySparkException as error:
            raise OffsetstreamError(f"cannot create the views in {database}: {first_line(error)}") from error
    print_line(f"Created {len(created)} views in {database}: {', '.join(created)}")


def database_of(store: Store, database: str | None) -> str:
    """Return the schema for the views: the given one, else the tables' own. Raise UsageError if there is none."""
    place = database or (store.name if store.needs_spark else None)
    if place is None:
        raise UsageError("the tables are in a folder: name the schema for the views by --database")
    if not _DATABASE.fullmatch(place):
        raise UsageError(f"--database {place} is not a schema name: give one such as kafka or lake.kafka")
    return place


@views.command(
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream views script --tables tables --database kafka > register.sql
  offsetstream views script --tables s3a://lake/kafka --database lake.kafka""",
)
@config_option("views.script")
@tables_option
@click.option("--database", metavar="[CATALOG.]SCHEMA", help="Register them in this schema; create it if missing.")
def script(tables: str, database: str | None) -> None:
    """Print the SQL that registers all tables and views in a Spark catalog.

    Run it with beeline -f or spark-sql -f. The tables stay where they are. If the table thresholds is missing, which
    the views read, the command creates it.
    """
    store = store_at(tables)
    statements = list(registration(store, database_of(store, database)))  # complete before any is printed
    click.echo("".join(f"{statement};\n\n" for statement in statements), nl=False)


@views.command(
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream views serve --tables tables
  offsetstream views serve --tables s3a://lake/kafka --port 10001 --conf spark.driver.memory=4g

There is no login: anyone who reaches the port has the rights of this process, also to write.
docs/how-to/bi.md shows how to connect BI tools.""",
)
@config_option("views.serve")
@tables_option
@click.option("--database", default="kafka", show_default=True, metavar="SCHEMA", help="Name of the schema to serve.")
@click.option(
    "--host", default=LOOPBACK, show_default=True, help="Listen at this address; another one lets others connect."
)
@click.option("--port", default=10_000, show_default=True, type=click.IntRange(1, 65_535), help="Listen at this port.")
@spark_options
def serve(tables: str, database: str, host: str, port: int, master: str | None, conf: dict[str, str]) -> None:
    """Serve tables and views over JDBC and ODBC with Spark's Thrift server, until Ctrl-C or SIGTERM.

    Each start registers them in a temporary catalog.
    """
    store = store_at(tables)
    statements = [] if store.needs_spark else list(registration(store, database_of(store, database)))
    check_port_is_free(port)
    ended = threading.Event()
    with stop_on_signal(ended.set):
        _serve(statements, ended, f"jdbc:hive2://{host}:{port}/{database}", (host, port, master, conf))


def _serve(
    statements: list[str],
    ended: threading.Event,
    url: str,
    at: tuple[str, int, str | None, dict[str, str]],
) -> None:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from offsetstream.spark.failures import explain_ended_java
    from offsetstream.spark.session import ending
    from offsetstream.spark.thrift_server import serve, serving_session

    host, port, master, conf = at
    with (
        tempfile.TemporaryDirectory(prefix="offsetstream-warehouse-") as warehouse,
        explain_ended_java(),
        ending(serving_session(host, port, Path(warehouse), master, conf)) as spark,
    ):
        try:
            serve(spark, statements)
        except (PySparkException, Py4JJavaError) as error:
            cause = error.java_exception if isinstance(error, Py4JJavaError) else error
            raise OffsetstreamError(f"the server cannot start: {first_line(cause)}") from error
        print_line(f"Serving {len(statements)} tables and views at {url}; Ctrl-C to stop")
        while not ended.wait(_CHECK_SECONDS):
            spark.sparkContext.defaultParallelism  # noqa: B018 - raises if the JVM is gone
