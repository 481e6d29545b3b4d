"""``offsetstream maintain``: retention, OPTIMIZE and VACUUM, beside a running job or without one."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import click
from pyspark.sql import SparkSession

from offsetstream.cli.main import OneLineErrors
from offsetstream.cli.options import SECONDS, output_of, output_options, tables_option
from offsetstream.cli.output import Column, tell
from offsetstream.maintenance.maintain import Maintenance
from offsetstream.spark.session import local_session
from offsetstream.tables.location import store_at

_DAYS = {"d": 1, "day": 1, "days": 1, "w": 7, "week": 7, "weeks": 7}
_COLUMNS = (
    Column("table", "TABLE"),
    Column("files_before", "FILES"),
    Column("files_after", "FILES-AFTER"),
    Column("bytes_before", "BYTES"),
    Column("bytes_after", "BYTES-AFTER"),
    Column("log_files_before", "LOG-FILES"),
    Column("log_files_after", "LOG-FILES-AFTER"),
    Column("files_compacted", "COMPACTED"),
    Column("rows_thinned", "ROWS-THINNED"),
    Column("note", "NOTE"),
)


def _duration(_: click.Context, __: click.Parameter, text: str | None) -> timedelta | None:
    """Return a number of days: ``30d``, ``4w``, or as Delta's properties have it, ``interval 30 days``."""
    if text is None:
        return None
    found = re.fullmatch(r"(?:interval\s+)?(\d{1,5})\s*([a-z]*)", text.strip().lower())
    days = int(found[1]) * _DAYS.get(found[2], 0) if found else 0
    if not days:
        raise click.BadParameter(f"{text!r} is no number of days such as 30d, 4w or 'interval 30 days', of at least 1d")
    return timedelta(days=days)


def maintain_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of the maintenance."""
    options = (
        click.option(
            "--keep-history",
            callback=_duration,
            metavar="DURATION",
            help="Of the days before that, keep the last row of each cell: 30d, 4w [default: keep everything].",
        ),
        click.option("--dry-run", is_flag=True, help="Say what there is to do, and do nothing."),
        click.option(
            "--timeout",
            type=SECONDS,
            default=300,
            show_default=True,
            metavar="SECONDS",
            help="How long to wait for the job.",
        ),
    )
    for option in options:
        command = option(command)
    return tables_option(output_options(command))


def run_maintenance(options: dict[str, Any], session: Callable[[], AbstractContextManager[SparkSession]]) -> None:
    """Do the maintenance with the options of :func:`maintain_options`, and print what was done."""
    output = output_of(options)
    keep: timedelta | None = options["keep_history"]
    horizon = None if keep is None else datetime.now(UTC).date() - keep
    maintenance = Maintenance(store_at(options["tables"]), session, tell, dry_run=options["dry_run"])
    output.table(_COLUMNS, [vars(done) for done in maintenance.run(horizon, options["timeout"])])


@click.command(
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream maintain --tables tables
  offsetstream maintain --tables tables --keep-history 30d --dry-run
  offsetstream maintain --tables tables --keep-history 26w --output json

FILES and BYTES are all that lies in a table's folder, files that no version needs any more included; they are deleted
once readers had their time: 6 hours for the tables of the present state, 2 days for the history. COMPACTED: small
files that were put together.""",
)
@maintain_options
def maintain(**options: Any) -> None:
    """Thin the history that is older than --keep-history, put small files together, delete those of no use.

    Run it as often as you like, also beside the job: what might disturb the job is left to the job itself.
    """
    run_maintenance(options, local_session)
