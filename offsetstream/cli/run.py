"""`offsetstream run`: the streaming job; its options serve the entry point for spark-submit too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.options import config_option, properties_of_config, settings_options
from offsetstream.cli.signals import end_when_asked
from offsetstream.errors import OffsetstreamError
from offsetstream.stream.settings import JobSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from offsetstream.progress import Progress

# Of a Spark that is started here: spark-submit has its own ways to say them.
OF_OWN_SPARK = ("master", "conf")


def run_job(options: dict[str, Any], session: Callable[[JobSettings], AbstractContextManager[SparkSession]]) -> None:
    """Run the job with the options of JobSettings; SIGTERM and SIGINT end it between two batches."""
    # PySpark takes seconds to import, and --help needs none of it.
    from offsetstream.progress import Progress  # noqa: PLC0415
    from offsetstream.stream.job import Job  # noqa: PLC0415

    settings = JobSettings(**options, properties=properties_of_config(click.get_current_context()))
    progress = Progress(as_json=settings.log_format == "json")
    with _told_as_json(progress) if progress.as_json else nullcontext():
        job = Job(settings, lambda: session(settings), progress)
        end_when_asked(job.stop)
        job.run()


@contextmanager
def _told_as_json(progress: Progress) -> Iterator[None]:
    """End an error in a line of JSON, where it would be one of text, and the same exit code."""
    try:
        yield
    except OffsetstreamError as error:
        progress.error(" ".join(str(error).splitlines()))
        raise click.exceptions.Exit(error.exit_code) from error


@click.command(
    epilog="""\b
Examples:
  offsetstream run --bootstrap-server localhost:9092 --tables tables
  offsetstream run --bootstrap-server broker:9093 --command-config client.properties --once
  offsetstream run --config offsetstream.toml
"""
)
@config_option("run")
@settings_options(JobSettings)
def run(**options: Any) -> None:
    """Replay __consumer_offsets into Delta tables until stopped.

    First every offsets partition is loaded, with a progress bar; then the stream goes on from there. SIGTERM, SIGINT
    and 'offsetstream stop' end it between two batches with exit code 0.
    """
    from offsetstream.stream.job import own_session  # noqa: PLC0415 - of PySpark

    run_job(options, own_session)
