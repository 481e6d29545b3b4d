"""The streaming job for spark-submit and Databricks: `offsetstream run` in the launcher's own session."""

from __future__ import annotations

from typing import Any

import click

from offsetstream.cli.main import SETTINGS, OneLineErrors
from offsetstream.cli.options import config_option, settings_options
from offsetstream.cli.run import OF_OWN_SPARK, run_job
from offsetstream.spark.session import submitted_session
from offsetstream.stream.settings import JobSettings


@click.command(cls=OneLineErrors, context_settings=SETTINGS)
@config_option("run", but=OF_OWN_SPARK)
@settings_options(JobSettings, but=OF_OWN_SPARK)
def materialize_offsets(**options: Any) -> None:
    """Replay __consumer_offsets into Delta tables until 'offsetstream stop'."""
    run_job(options, lambda _: submitted_session())


if __name__ == "__main__":
    materialize_offsets()
