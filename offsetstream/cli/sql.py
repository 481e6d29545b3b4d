"""`offsetstream sql`: run a user's query over all tables and views; it can read nothing else and change nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import click

from offsetstream.cli.failures import OneLineErrors
from offsetstream.cli.options import SECONDS, Value, output_of, output_options, tables_option
from offsetstream.cli.output import Column, Output, RereadRows
from offsetstream.cli.settings_file import asked_clusters, config_option
from offsetstream.cli.text import Instant, instant_text, print_line, printable
from offsetstream.errors import TablesError, first_line
from offsetstream.settings import kinds
from offsetstream.tables.location import store_at
from offsetstream.tables.schema import OPTIONAL_TABLES, all_schemas
from offsetstream.views.files import all_views

_LIST = (Column("name", "NAME", 24), Column("kind", "KIND", 5), Column("at", "AT"), Column("what", "WHAT"))

_MEMORY, _TIMEOUT = "1GB", 300.0  # those of sandbox.Limits, which is slow to import


@click.command(
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream sql --list
  offsetstream sql "SELECT topic, sum(lag) FROM lag GROUP BY topic ORDER BY 2 DESC"
  offsetstream sql --at 03:00 "SELECT * FROM offsets_at WHERE group_id = 'billing'"
  offsetstream sql "FROM commit_audit" --output csv --file audit.csv
  offsetstream sql --all-clusters "SELECT cluster, count(*) FROM groups GROUP BY cluster"

Queries use DuckDB's dialect. They cannot read other files, reach the network or change settings. What does not fit into
--memory goes to disk where possible, as for sorting; else the query fails. With --all-clusters each table and view has
the rows of all clusters, and a first column cluster.""",
)
@config_option("sql")
@click.argument("query", required=False)
@click.option("--list", "list_names", is_flag=True, help="List the tables and views that a query may read.")
@click.option(
    "--at", type=Instant(), metavar="TIME", help="Time for views that need one, such as offsets_at: 10m (ago), 03:00."
)
@click.option(
    "--memory",
    type=Value(kinds.MEMORY),
    default=_MEMORY,
    show_default=True,
    metavar="SIZE",
    help="Let the query take this much memory: 400MB, 2GB.",
)
@click.option(
    "--timeout",
    type=SECONDS,
    default=_TIMEOUT,
    show_default=True,
    metavar="SECONDS",
    help="Stop the query when it has worked this long.",
)
@tables_option
@output_options
def sql(
    *,
    query: str | None,
    list_names: bool,
    at: datetime | None,
    memory: str,
    timeout: float,
    tables: str,
    **options: Any,
) -> None:
    """Query all tables and views with one SELECT.

    docs/reference/tables.md and views.md list their columns; 'offsetstream sql --list' lists their names.
    """
    from offsetstream.views.reader import ViewReader
    from offsetstream.views.sandbox import Limits, Query

    output = output_of(options)
    if list_names == (query is not None):
        raise click.UsageError("give a query, such as 'SELECT * FROM lag', or --list")
    if query is None:
        _print_names(output)
        return
    failed, limits = list[str](), Limits(memory, timeout)
    with limits.of_process():
        if clusters := asked_clusters():
            from offsetstream.cli.settings_file import stores_of

            stores = stores_of(click.get_current_context(), clusters)
            running = Query.over_clusters(stores, query, at, partial(_report_unreadable, failed), limits)
        else:
            running = Query(ViewReader(store_at(tables)), query, at, limits)

        shown = as_json if output.output_format == "json" else plain

        def rows() -> Iterator[dict[str, Any]]:
            return (
                {name: shown(value) for name, value in zip(running.columns, row, strict=True)} for row in running.rows()
            )

        output.table([Column(name, printable(name)) for name in running.columns], RereadRows(rows))
    click.get_current_context().exit(1 if failed else 0)


def _report_unreadable(failed: list[str], cluster: str, error: TablesError) -> None:
    failed.append(cluster)
    print_line(f"{cluster}: Error: {first_line(error)}")


def _print_names(output: Output) -> None:
    rows = [
        {"name": schema.name, "kind": "table", "what": schema.comment.split(". ")[0]}
        for schema in sorted([*all_schemas().values(), *OPTIONAL_TABLES.values()], key=lambda schema: schema.name)
    ]
    views = sorted((view for view in all_views().values() if not view.is_helper), key=lambda view: view.name)
    rows += [
        {"name": view.name, "kind": "view", "at": "--at" if view.is_at else "", "what": view.comment.split(". ")[0]}
        for view in views
    ]
    output.table(_LIST, rows)


def plain(value: Any) -> Any:
    """Return a DuckDB value in a form that text and CSV can hold: a list or struct as JSON."""
    found = as_json(value)
    return json.dumps(found, ensure_ascii=False) if isinstance(found, list | dict) else found


def as_json(value: Any) -> Any:
    """Return a DuckDB value in a form that JSON can hold."""
    for types, converted in _JSON:
        if isinstance(value, types):
            return converted(value)
    return str(value)


def _instant(value: datetime) -> str | None:
    if value.tzinfo is None or value.microsecond % 1000:
        return value.isoformat().replace("+00:00", "Z")
    return instant_text(value)


_JSON: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (str | bool | int | None, lambda value: value),
    (float, lambda value: value if math.isfinite(value) else str(value)),
    (Decimal, float),
    (datetime, _instant),
    (date, date.isoformat),
    (bytes, bytes.hex),
    (list | tuple, lambda value: [as_json(each) for each in value]),
    (dict, lambda value: {str(key): as_json(each) for key, each in value.items()}),
)
