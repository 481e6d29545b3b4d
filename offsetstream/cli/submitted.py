"""The job and its maintenance in the session of a launcher: spark-submit, or a task of Databricks.

`streaming_jobs/` has them as scripts, the wheel as entry points (`packages` in pyproject.toml).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.main import SETTINGS, OneLineErrors, main
from offsetstream.cli.maintain import maintain_options, run_maintenance
from offsetstream.cli.options import config_option, settings_options
from offsetstream.cli.run import OF_OWN_SPARK, run_job
from offsetstream.stream.settings import JobSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def _returning() -> Iterator[None]:
    """Let pass only failures: Databricks may take any SystemExit for one, that of 0 too."""
    try:
        yield
    except SystemExit as end:
        if end.code:
            raise


class SubmittedCommand(OneLineErrors):
    """A command that returns where it succeeds."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run it; SystemExit with the exit code where it fails."""
        with _returning():
            return super().main(*args, **kwargs)


@click.command(cls=SubmittedCommand, context_settings=SETTINGS)
@config_option("run", but=OF_OWN_SPARK)
@settings_options(JobSettings, but=OF_OWN_SPARK)
def materialize_offsets(**options: Any) -> None:
    """Replay __consumer_offsets into Delta tables until 'offsetstream stop'."""
    run_job(options, lambda _: _launchers_session())


@click.command(cls=SubmittedCommand, context_settings=SETTINGS)
@partial(maintain_options, but=OF_OWN_SPARK)
def maintain_tables(**options: Any) -> None:
    """Thin the history that is older than --keep-history, put small files together, delete those of no use."""
    run_maintenance(options, lambda _: _launchers_session())


def _launchers_session() -> AbstractContextManager[SparkSession]:
    from offsetstream.spark.session import launchers_session  # noqa: PLC0415 - of PySpark, which --help does not need

    return launchers_session()


def command() -> None:
    """Run any command, such as `stop` or `verify`; SystemExit where it fails."""
    with _returning():
        main()
