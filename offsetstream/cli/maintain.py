"""`offsetstream maintain`: retention, OPTIMIZE and VACUUM, with or without a running job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.failures import OneLineErrors
from offsetstream.cli.options import open_with_spark, output_of, output_options, own_spark, settings_options
from offsetstream.cli.output import Column
from offsetstream.cli.settings_file import config_option
from offsetstream.cli.text import instant_text, print_line
from offsetstream.maintenance.settings import MaintenanceSettings, horizons
from offsetstream.tables.location import store_at
from offsetstream.tables.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS = (
    Column("table", "TABLE"),
    Column("files_before", "FILES", 0, "number"),
    Column("files_after", "FILES-AFTER", 0, "number"),
    Column("bytes_before", "BYTES", 0, "number"),
    Column("bytes_after", "BYTES-AFTER", 0, "number"),
    Column("log_files_before", "LOG-FILES", 0, "number"),
    Column("log_files_after", "LOG-FILES-AFTER", 0, "number"),
    Column("files_compacted", "COMPACTED", 0, "number"),
    Column("rows_thinned", "ROWS-THINNED", 0, "number"),
    Column("note", "NOTE"),
)


def maintain_options(command: Callable[..., None], excluded: tuple[str, ...] = ()) -> Callable[..., None]:
    """Add the options of the maintenance, without the settings named in `excluded`."""
    return config_option("maintain", excluded)(settings_options(MaintenanceSettings, excluded)(output_options(command)))


def run_maintenance(
    options: dict[str, Any], session: Callable[[MaintenanceSettings], AbstractContextManager[SparkSession]]
) -> None:
    """Maintain the tables with the options of `maintain_options`, and print the result. `session` provides a Spark."""
    from offsetstream.maintenance.maintain import Maintenance, end_tables

    output = output_of(options)
    settings = MaintenanceSettings(**options)
    kept = horizons(settings.keep_history, datetime.now(UTC).date())
    if settings.end:
        with open_with_spark(settings.tables, partial(session, settings)) as store:
            ended_at = end_tables(store, print_line, dry_run=settings.dry_run)
        end = "would end" if settings.dry_run else "end"
        print_line(
            f"These tables {end} at {instant_text(ended_at)}. Commands take that time as now until a job starts."
        )
        return
    with _opened(settings, partial(session, settings)) as store:
        results = Maintenance(store, print_line, dry_run=settings.dry_run).run(kept, settings.timeout)
    output.table(_COLUMNS, [vars(result) for result in results])


@contextmanager
def _opened(
    settings: MaintenanceSettings, session: Callable[[], AbstractContextManager[SparkSession]]
) -> Iterator[Store]:
    """Yield the tables; with --fill-history, after the decoded history is filled."""
    if not settings.fill_history:
        with open_with_spark(settings.tables, session) as store:
            yield store
        return
    from offsetstream.maintenance.fill_history import fill_history

    with session() as spark:
        store = store_at(settings.tables).read_by(spark)
        fill_history(spark, store, print_line, dry_run=settings.dry_run)
        yield store


@click.command(
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream maintain --tables tables
  offsetstream maintain --tables tables --keep-history 30d --dry-run
  offsetstream maintain --tables tables --keep-history 26w --output json
  offsetstream maintain --tables tables --fill-history

FILES and BYTES count all files in a table's folder, also those that no version needs any more. Such files stay for
running readers, and are deleted after 6 hours (state tables) or 2 days (history tables). COMPACTED counts the small
files that were merged.""",
)
@maintain_options
def maintain(**options: Any) -> None:
    """Thin history older than --keep-history, compact small files, and delete unused files.

    You can run it at any time, also while the job runs: it leaves to the job what could disturb it.
    """
    run_maintenance(options, lambda settings: own_spark(settings.master, settings.conf))
