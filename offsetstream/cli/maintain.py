"""`offsetstream maintain`: retention, OPTIMIZE and VACUUM, beside a running job or without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.main import OneLineErrors
from offsetstream.cli.options import config_option, output_of, output_options, settings_options
from offsetstream.cli.own_spark import own_spark, reached
from offsetstream.cli.rows import Column
from offsetstream.cli.tell import tell
from offsetstream.cli.times import instant_text
from offsetstream.maintenance.settings import MaintenanceSettings
from offsetstream.tables.location import store_at
from offsetstream.tables.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


def maintain_options(command: Callable[..., None], but: tuple[str, ...] = ()) -> Callable[..., None]:
    """Give a command the options of the maintenance, without the settings that are named in `but`."""
    return config_option("maintain", but)(settings_options(MaintenanceSettings, but)(output_options(command)))


def run_maintenance(
    options: dict[str, Any], session: Callable[[MaintenanceSettings], AbstractContextManager[SparkSession]]
) -> None:
    """Do the maintenance with the options of `maintain_options`, and print what was done; `session` gives a Spark."""
    from offsetstream.maintenance.maintain import Maintenance, end_tables  # noqa: PLC0415 - of Arrow, which --help does not need

    output = output_of(options)
    settings = MaintenanceSettings(**options)
    keep = settings.keep_history
    horizon = None if keep is None else datetime.now(UTC).date() - keep
    if settings.end:
        with reached(settings.tables, partial(session, settings)) as store:
            ended_at = end_tables(store, tell, dry_run=settings.dry_run)
        end = "would end" if settings.dry_run else "end"
        tell(
            f"These tables {end} at {instant_text(ended_at)}, which is their now until a job begins to keep them again."
        )
        return
    with _filled(settings, partial(session, settings)) as store:
        done = Maintenance(store, tell, dry_run=settings.dry_run).run(horizon, settings.timeout)
    output.table(_COLUMNS, [vars(each) for each in done])


@contextmanager
def _filled(
    settings: MaintenanceSettings, session: Callable[[], AbstractContextManager[SparkSession]]
) -> Iterator[Store]:
    """Give the tables, once their decoded history is filled, if it is to be."""
    if not settings.fill_history:
        with reached(settings.tables, session) as store:
            yield store
        return
    from offsetstream.maintenance.fill_history import fill_history  # noqa: PLC0415 - of Spark

    with session() as spark:
        store = store_at(settings.tables).read_by(spark)
        fill_history(spark, store, tell, dry_run=settings.dry_run)
        yield store


@click.command(
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream maintain --tables tables
  offsetstream maintain --tables tables --keep-history 30d --dry-run
  offsetstream maintain --tables tables --keep-history 26w --output json
  offsetstream maintain --tables tables --fill-history

FILES and BYTES are all that lies in a table's folder, files that no version needs any more included; they are deleted
once readers had their time: 6 hours for the tables of the present state, 2 days for the history. COMPACTED: small
files that were put together.""",
)
@maintain_options
def maintain(**options: Any) -> None:
    """Thin the history that is older than --keep-history, put small files together, delete those of no use.

    Run it as often as you like, also beside the job: what might disturb the job is left to the job itself.
    """
    run_maintenance(options, lambda settings: own_spark(settings.master, settings.conf))
