"""The streaming job for spark-submit and Databricks: ``offsetstream run`` in the launcher's own session."""

from __future__ import annotations

from typing import Any

import click

from offsetstream.cli.main import SETTINGS, OneLineErrors
from offsetstream.cli.run import job_options, run_job
from offsetstream.spark.session import submitted_session


@click.command(cls=OneLineErrors, context_settings=SETTINGS)
@job_options
def materialize_offsets(**options: Any) -> None:
    """Replay __consumer_offsets into Delta tables until 'offsetstream stop'."""
    run_job(options, submitted_session)


if __name__ == "__main__":
    materialize_offsets()
