"""`offsetstream views list` and `create`, for Spark catalogs; `cli/serving.py` has the commands for BI tools."""

from __future__ import annotations

from typing import Any

import click

from offsetstream.cli.failures import OneLineErrors
from offsetstream.cli.messages import print_line
from offsetstream.cli.options import config_option, output_of, output_options, tables_option
from offsetstream.cli.output import Column
from offsetstream.cli.own_spark import own_spark, spark_options
from offsetstream.cli.serving import database_of, script, serve
from offsetstream.errors import OffsetstreamError, first_line
from offsetstream.tables.location import store_at
from offsetstream.tables.store import Store

_LIST = (Column("view", "VIEW", 24), Column("at", "AT"), Column("what", "WHAT"))


@click.group()
def views() -> None:
    """List the SQL views, create them in a catalog, or serve tables and views to BI tools."""


views.add_command(script)
views.add_command(serve)


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
    from offsetstream.views.files import all_views  # noqa: PLC0415 - slow

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
    from offsetstream.views.spark import statements  # noqa: PLC0415 - slow: Arrow

    store = store_at(tables)
    place = database_of(store, database)
    if dry_run:
        click.echo("".join(f"{statement};\n\n" for statement in statements(store, place)), nl=False)
        return
    _create(store, place, master, conf)


def _create(store: Store, database: str, master: str | None, conf: dict[str, str]) -> None:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - slow: PySpark

    from offsetstream.views.spark import create_views  # noqa: PLC0415 - slow

    with own_spark(master, conf) as spark:
        try:
            created = create_views(store.read_by(spark), database, spark)
        except PySparkException as error:
            raise OffsetstreamError(f"cannot create the views in {database}: {first_line(error)}") from error
    print_line(f"Created {len(created)} views in {database}: {', '.join(created)}")
