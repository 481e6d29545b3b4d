"""`offsetstream run`: the streaming job. The entry point for spark-submit uses the same options."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.all_clusters import FLAG, clusters_of, require_from_file
from offsetstream.cli.failures import is_unknown, unknown_error
from offsetstream.cli.messages import counted, printable
from offsetstream.cli.options import config_option, properties_of_config, settings_options
from offsetstream.cli.signals import stop_at_end_of_input, stop_on_signal
from offsetstream.cli.supervisor import SUPERVISED, ClusterJob, Supervisor
from offsetstream.errors import OffsetstreamError, UsageError
from offsetstream.settings.config_file import ConfigFile
from offsetstream.settings.schema import CONFIG_VARIABLE
from offsetstream.stream.settings import JobSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from offsetstream.progress import Progress

# Options for a Spark that the command starts; spark-submit has its own flags for them.
OWN_SPARK_OPTIONS = ("master", "conf")
_JOBS = f"{__name__}.jobs"  # the key in a context's meta for the jobs of all clusters


def run_job(options: dict[str, Any], session: Callable[[JobSettings], AbstractContextManager[SparkSession]]) -> None:
    """Run the job with the options of JobSettings. SIGTERM and SIGINT stop it between two batches."""
    from offsetstream.progress import Progress  # noqa: PLC0415 - --help does not need it

    progress = Progress(as_json=options["log_format"] == "json")
    with errors_logged(progress, options["checkpoint"]):
        settings = JobSettings(**options, properties=properties_of_config(click.get_current_context()))
        stop = threading.Event()
        with stop_on_signal(stop.set), stop_at_end_of_input(stop.set) if os.environ.get(SUPERVISED) else nullcontext():
            started = session(settings)  # Java starts in parallel with the imports below, which take a second
            from offsetstream.spark.local import end_at_once  # noqa: PLC0415
            from offsetstream.stream.job import Job  # noqa: PLC0415

            Job(settings, started, progress, stop, end_at_once).run()


@contextmanager
def errors_logged(progress: Progress, checkpoint: str | None = None) -> Iterator[None]:
    """Write an error as the last log line, and end with its exit code. `checkpoint`: the folder of the job's."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OffsetstreamError):
            message = " ".join(str(error).splitlines())
        elif is_unknown(error):
            message = unknown_error(error, checkpoint)
        else:
            raise  # OneLineErrors has words for it
        progress.error(message if progress.as_json else printable(message))
        raise click.exceptions.Exit(getattr(error, "exit_code", OffsetstreamError.exit_code)) from error


class RunCommand(click.Command):
    """The command `run`. With `--all-clusters` it starts a process for each cluster, which parses its own options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options; with `--all-clusters` for each cluster, to report errors before any process starts."""
        if FLAG not in args or set(args) & set(ctx.help_option_names):
            return super().parse_args(ctx, args)
        given, *_ = self.make_parser(ctx).parse_args(args=list(args))
        file = ConfigFile.read(given.get("config") or os.environ.get(CONFIG_VARIABLE) or None)
        options = [each for each in args if each != FLAG]
        names = clusters_of(ctx, file, given.get("cluster"))
        ctx.meta[_JOBS] = [self._job(ctx, name, [*options, "--cluster", name]) for name in names]
        return []

    def invoke(self, ctx: click.Context) -> Any:
        """Run the job, or the jobs of all clusters."""
        jobs = ctx.meta.get(_JOBS)
        if jobs is None:
            return super().invoke(ctx)
        supervisor = Supervisor(jobs)
        with stop_on_signal(supervisor.stop):
            failed = supervisor.run()
        if failed:
            raise OffsetstreamError(f"{len(failed)} of {counted(len(jobs), 'job')} failed: {', '.join(failed)}")
        return None

    def _job(self, ctx: click.Context, name: str, options: list[str]) -> ClusterJob:
        try:
            context = self.make_context(self.name, list(options), parent=ctx.parent)
        except click.UsageError as error:
            raise UsageError(f"cluster {name}: {error.format_message()}") from error
        require_from_file(context)
        command = [sys.executable, "-m", "offsetstream", "run", *options]
        as_json = context.params["log_format"] == "json"
        return ClusterJob(name, command, runs_until_stopped=not context.params["once"], as_json=as_json)


@click.command(
    cls=RunCommand,
    epilog="""\b
Examples:
  offsetstream run --bootstrap-server localhost:9092 --tables tables
  offsetstream run --bootstrap-server broker:9093 --command-config client.properties --once
  offsetstream run --config offsetstream.toml
  offsetstream run --config offsetstream.toml --all-clusters
""",
)
@config_option("run")
@click.option(
    FLAG,
    is_flag=True,
    is_eager=True,
    expose_value=False,
    allow_from_autoenv=False,
    help="Run a process for each cluster of the file; restart one that fails.",
)
@settings_options(JobSettings)
def run(**options: Any) -> None:
    """Replay __consumer_offsets into Delta tables until stopped.

    The job first loads every offsets partition, with a progress bar, and then follows the topic. SIGTERM, SIGINT and
    'offsetstream stop' stop it between two batches, with exit code 0. Each option can also come from the environment
    (--max-silence: OFFSETSTREAM_MAX_SILENCE) or from the table [run] of the --config file.
    """
    from offsetstream.stream.own_session import own_session  # noqa: PLC0415 - slow: PySpark

    run_job(options, own_session)
