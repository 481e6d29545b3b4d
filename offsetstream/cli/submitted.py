"""The job and its maintenance in the Spark session of a launcher: spark-submit, or a Databricks task.

`streaming_jobs/` calls them as scripts, and the wheel as entry points (`packages` in pyproject.toml).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.failures import OneLineErrors
from offsetstream.cli.main import SETTINGS, main
from offsetstream.cli.maintain import maintain_options, run_maintenance
from offsetstream.cli.options import settings_options
from offsetstream.cli.process import end_quietly, hold_standard_descriptors
from offsetstream.cli.run import OWN_SPARK_OPTIONS, run_job
from offsetstream.cli.settings_file import config_option
from offsetstream.stream.settings import JobSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def _returning() -> Iterator[None]:
    """Return normally on SystemExit with code 0: Databricks may treat any SystemExit as a failure."""
    try:
        yield
    except SystemExit as exited:
        if exited.code:
            raise


class SubmittedCommand(OneLineErrors):
    """A command that returns normally when it succeeds."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command. Raise SystemExit with the exit code if it fails."""
        with _returning():
            hold_standard_descriptors()
            try:
                return super().main(*args, **kwargs)
            except SystemExit as ended:
                end_quietly(ended)
                raise


@click.command(cls=SubmittedCommand, context_settings=SETTINGS)
@config_option("run", ignored=OWN_SPARK_OPTIONS)
@settings_options(JobSettings, excluded=OWN_SPARK_OPTIONS)
def materialize_offsets(**options: Any) -> None:
    """Replay __consumer_offsets into Delta tables until 'offsetstream stop'."""
    run_job(options, lambda _: _launcher_session())


@click.command(cls=SubmittedCommand, context_settings=SETTINGS)
@partial(maintain_options, excluded=OWN_SPARK_OPTIONS)
def maintain_tables(**options: Any) -> None:
    """Thin history older than --keep-history, compact small files, and delete unused files."""
    run_maintenance(options, lambda _: _launcher_session())


def _launcher_session() -> AbstractContextManager[SparkSession]:
    from offsetstream.spark.session import launchers_session

    return launchers_session()


def command() -> None:
    """Run any command, such as `stop` or `verify`. Raise SystemExit if it fails."""
    with _returning():
        main()
