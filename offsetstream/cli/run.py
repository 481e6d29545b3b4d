"""`offsetstream run`: the streaming job, or the jobs of all clusters.

The entry point for spark-submit uses the same options. With `--all-clusters` each cluster has a process
with its own Spark, so that outages stay separate.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.failures import is_unknown, unknown_error
from offsetstream.cli.options import properties_of_config, settings_options
from offsetstream.cli.process import stop_at_end_of_input, stop_on_signal
from offsetstream.cli.settings_file import ALL_CLUSTERS, clusters_of, config_option, require_from_file
from offsetstream.cli.text import counted, print_line, printable
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
    from offsetstream.progress import Progress

    progress = Progress(as_json=options["log_format"] == "json")
    with errors_logged(progress, options["checkpoint"]):
        settings = JobSettings(**options, properties=properties_of_config(click.get_current_context()))
        stop = threading.Event()
        with stop_on_signal(stop.set), stop_at_end_of_input(stop.set) if os.environ.get(SUPERVISED) else nullcontext():
            started = session(settings)  # Java starts in parallel with the imports below, which take a second
            from offsetstream.spark.local import end_at_once
            from offsetstream.stream.job import Job

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
        if ALL_CLUSTERS not in args or set(args) & set(ctx.help_option_names):
            return super().parse_args(ctx, args)
        given, *_ = self.make_parser(ctx).parse_args(args=list(args))
        file = ConfigFile.read(given.get("config") or os.environ.get(CONFIG_VARIABLE) or None)
        options = [each for each in args if each != ALL_CLUSTERS]
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
    ALL_CLUSTERS,
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
    from offsetstream.stream.own_session import own_session

    run_job(options, own_session)


# A job with this in its environment stops between two batches when its standard input closes: its supervisor is gone.
SUPERVISED = "OFFSETSTREAM_SUPERVISED"
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds
_STABLE_SECONDS = 600.0  # a job that ran this long restarts after the first pause again
_SIGNAL_SECONDS = 1.0  # a signal is handled within this time
_DRAIN_SECONDS = 10.0  # a Java may need this long to notice that its driver was killed


@dataclass(frozen=True)
class ClusterJob:
    """The job of a cluster: its name, the command that starts its process, and whether it runs until stopped.

    `as_json` means that its lines are JSON objects and stay JSON objects.
    """

    name: str
    command: Sequence[str]
    runs_until_stopped: bool
    as_json: bool = False


class Supervisor:
    """Runs the jobs until all have ended. `stop`, which a signal handler may call, stops them between two batches."""

    def __init__(self, jobs: Sequence[ClusterJob], first_pause: float = _FIRST_PAUSE) -> None:
        self._jobs = jobs
        self._first_pause = first_pause
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._lock = threading.RLock()  # reentrant: a signal handler may interrupt another one that holds it
        self._stopping = threading.Event()
        self._failed: dict[str, str] = {}

    def run(self) -> list[str]:
        """Run all jobs to their end. Return the failed ones, each with its exit code or signal."""
        threads = [threading.Thread(target=self._supervise, args=[job], daemon=True) for job in self._jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            # Without a timeout, CPython may never handle a signal that arrives just before, or in another thread.
            while thread.is_alive():
                thread.join(_SIGNAL_SECONDS)
        return [f"{job.name} ({self._failed[job.name]})" for job in self._jobs if job.name in self._failed]

    def stop(self) -> None:
        """Ask all jobs to stop, and start no more."""
        self._stopping.set()
        with self._lock:
            for process in self._running.values():
                process.terminate()

    def _supervise(self, job: ClusterJob) -> None:
        pause = self._first_pause
        while True:
            started = time.monotonic()
            code = self._run_once(job)
            if code == 0:
                self._failed.pop(job.name, None)
                return
            how = self._failed[job.name] = _how(code)
            if code == UsageError.exit_code or not job.runs_until_stopped or self._stopping.is_set():
                _say(job, f"the job ended with {how}")
                return
            pause = self._first_pause if time.monotonic() - started > _STABLE_SECONDS else pause
            _say(job, f"the job ended with {how}; restarting it in {pause:g} s")
            if self._stopping.wait(pause):
                return
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _run_once(self, job: ClusterJob) -> int:
        """Run the process to its end and return its exit code; 0 if `stop` ended it before it started to work."""
        with self._lock:
            if self._stopping.is_set():
                return 0
            process = subprocess.Popen(
                job.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env={**os.environ, SUPERVISED: "1"},
                process_group=0,  # Ctrl-C in the terminal reaches only the supervisor, which stops the jobs
            )
            self._running[job.name] = process
        reading = threading.Thread(target=_pass_on, args=[job, process], daemon=True)
        reading.start()
        code = process.wait()
        with self._lock:
            del self._running[job.name]
        reading.join(_DRAIN_SECONDS)
        if reading.is_alive():  # a child of the job keeps its output open
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            reading.join(_DRAIN_SECONDS)
        with suppress(OSError):
            _close(process)
        return 0 if code == -signal.SIGTERM and self._stopping.is_set() else code


def _pass_on(job: ClusterJob, process: subprocess.Popen[str]) -> None:
    """Write each line of a job with its name. If nobody reads them any more, continue: the job must not wait."""
    for line in process.stdout or ():
        with suppress(OSError):
            _say(job, line.rstrip("\n"), "info")


def _say(job: ClusterJob, line: str, level: str = "error") -> None:
    """Write a line with the name of the job's cluster: after time and level, or as a key of the JSON object.

    Lines that are no log lines, such as Java's, become log lines of `level`.
    """
    from offsetstream.progress import LINE_START, json_line, text_line

    if not job.as_json:
        start = LINE_START.match(line)
        named = f"{job.name}: {line[start.end() :] if start else line}"
        print_line(f"{start.group()}{named}" if start else text_line(level, named))
        return
    with suppress(ValueError):
        fields = json.loads(line)
        if isinstance(fields, dict):
            print_line(json.dumps({**fields, "cluster": job.name}, ensure_ascii=False))
            return
    print_line(json_line(level, line, {"cluster": job.name}))


def _close(process: subprocess.Popen[str]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _how(code: int) -> str:
    return f"exit code {code}" if code > 0 else signal.Signals(-code).name
