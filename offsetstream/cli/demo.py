"""`offsetstream demo`: a real broker, real clients, the real job, and what its tables then show."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
from click.core import ParameterSource
from rich.console import Console

from offsetstream.cli.options import BROKERS
from offsetstream.cli.signals import end_when_asked
from offsetstream.cluster.client import Cluster
from offsetstream.demo.busy import keep_busy
from offsetstream.demo.workload import run_workload
from offsetstream.embedded.kafka import DEFAULT_VERSION, EmbeddedKafka
from offsetstream.errors import OffsetstreamError, UsageError
from offsetstream.tables.location import store_at
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.names import OFFSETS_PARTITIONS, OWNED

_MARKER = ".offsetstream-demo"
_PAGE = "report.html"
_TIMEOUT = 180.0  # seconds
_GROUPS = 60
_SHOWN = ("billing", "ledger", "data-lake-export")
Say = Callable[..., None]
_OFFSETSTREAM = (sys.executable, "-m", "offsetstream")


@click.command(
    epilog="""\b
Examples:
  offsetstream demo
  offsetstream demo --kafka-version 3.9.2 --tables /tmp/demo
  offsetstream demo --bootstrap-server localhost:9092 --pause 5
"""
)
@click.option("--kafka-version", default=DEFAULT_VERSION, show_default=True, help="Kafka to start.")
@click.option("--brokers", type=click.Choice(["1", "3"]), default="1", show_default=True, help="Number of brokers.")
@click.option("--port", type=click.IntRange(1, 65_535), help="Port of the first broker [default: a free one].")
@click.option("--tables", default="demo-tables", show_default=True, metavar="DIR", help="Folder for the tables.")
@click.option("--groups", default=_GROUPS, show_default=True, help="Number of consumer groups.")
@click.option(
    "--bootstrap-server",
    type=BROKERS,
    metavar="HOST:PORT",
    allow_from_autoenv=False,  # it deletes groups there: nobody's variable is to send it to a cluster in use
    help="Run the clients alone, until stopped, on this cluster, which nobody else may use.",
)
@click.option(
    "--pause",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Then: time between two changes of the groups.",
)
@click.pass_context
def demo(
    ctx: click.Context,
    kafka_version: str,
    brokers: str,
    port: int | None,
    tables: str,
    groups: int,
    bootstrap_server: str | None,
    pause: float,
) -> None:
    """Run the job on an embedded, real Kafka broker with real clients, and look at its tables.

    Starts a broker, gives it classic, KIP-848, transactional, deleted and lagging groups, runs the streaming job
    against it while they change, shows the tables, and stops everything it started.
    """
    _refuse_what_does_not_go_together(ctx, bootstrap_server)
    say = Console(highlight=False, soft_wrap=True).print
    if bootstrap_server is None:
        _whole_demo(kafka_version, int(brokers), port, Path(tables), groups, say)
    else:
        stopped = threading.Event()
        with end_when_asked(stopped.set):
            keep_busy(
                bootstrap_server, groups=groups, pause=pause, stopped=stopped, say=lambda line: say(line, markup=False)
            )


def _refuse_what_does_not_go_together(ctx: click.Context, bootstrap_server: str | None) -> None:
    of_the_other = ("kafka_version", "brokers", "port", "tables") if bootstrap_server else ("pause",)
    given = [name for name in of_the_other if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if given:
        option = f"--{given[0].replace('_', '-')}"
        raise UsageError(f"{option} does not go {'with' if bootstrap_server else 'without'} --bootstrap-server")


def _whole_demo(kafka_version: str, brokers: int, port: int | None, tables: Path, groups: int, say: Say) -> None:
    folder, begun = _fresh_folder(tables), time.monotonic()
    with ExitStack() as running:
        say(f"[bold]1. A real Kafka {kafka_version} broker[/] (downloaded once, then cached)")
        kafka = running.enter_context(EmbeddedKafka(kafka_version, brokers, port=port))
        say(f"   listens at {kafka.bootstrap_server}\n[bold]2. Real clients[/]")
        workload = running.enter_context(
            run_workload(
                kafka.bootstrap_server, groups=groups, seed=1, say=lambda line: say(f"   {line}", markup=False)
            )
        )
        say("[bold]3. The streaming job[/]: loads all offsets partitions, then streams")
        running.enter_context(_job(kafka.bootstrap_server, folder))
        _await_caught_up(kafka.bootstrap_server, folder)
        say("[bold]4. The groups change[/] while the job streams")
        workload.more()
        _await_caught_up(kafka.bootstrap_server, folder)
        _show(kafka.bootstrap_server, folder, say)
    say("[bold]6. What became of them[/], on one page")
    since = f"{time.monotonic() - begun:.0f}s"
    _offsetstream("report", "--file", str(folder / _PAGE), "--since", since, "--tables", str(folder / "tables"))
    _tell_how_to_query(folder, say)


def _fresh_folder(folder: Path) -> Path:
    """Make the folder, in place of an earlier demo's: every demo's cluster is another one."""
    if folder.exists() and not (folder / _MARKER).exists():
        raise UsageError(f"{folder} exists and is not an earlier demo's: name another folder by --tables")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / _MARKER).touch()
    return folder.absolute()


@contextmanager
def _job(bootstrap_server: str, folder: Path) -> Iterator[None]:
    tables, checkpoints = str(folder / "tables"), str(folder / "checkpoints")
    command = [*_OFFSETSTREAM, "run", "--bootstrap-server", bootstrap_server, "--tables", tables]
    job = subprocess.Popen([*command, "--checkpoint", checkpoints, "--trigger", "1 second"])
    try:
        yield
        _offsetstream("stop", "--tables", tables)
        if job.wait(_TIMEOUT) != 0:
            raise OffsetstreamError(f"the job ended with exit code {job.returncode}")
    finally:
        if job.poll() is None:
            job.kill()
            job.wait()


def _await_caught_up(bootstrap_server: str, folder: Path) -> None:
    """Wait until the tables hold every record that is in the topic now."""
    cluster = Cluster(bootstrap_server)
    ends = {
        number: end.last_stable_offset for number, end in cluster.partition_ends(cluster.topic_partitions()).items()
    }
    deadline = time.monotonic() + _TIMEOUT
    while any(_applied(folder).get(number, 0) < end for number, end in ends.items()):
        if time.monotonic() > deadline:
            raise OffsetstreamError(f"the job did not catch up within {_TIMEOUT:.0f} s: see its messages above")
        time.sleep(0.5)


def _applied(folder: Path) -> dict[int, int]:
    store = store_at(str(folder / "tables"))
    if not (folder / "tables" / OFFSETS_PARTITIONS).exists():
        return {}
    rows = Lookup(store).rows(OFFSETS_PARTITIONS, ["offsets_partition", "load_state", "next_offset"])
    return {row["offsets_partition"]: row["next_offset"] for row in rows if row["load_state"] == OWNED}


def _show(bootstrap_server: str, folder: Path, say: Say) -> None:
    tables = ("--tables", str(folder / "tables"))
    say("[bold]5. What the tables hold[/]: the coordinator's groups")
    _offsetstream("groups", "list", *tables)
    shown = [argument for group in _SHOWN for argument in ("--group", group)]
    say(f"[bold]   and the committed offsets, owners and lag[/] of {', '.join(_SHOWN)}")
    _offsetstream("groups", "describe", *shown, *tables, "--bootstrap-server", bootstrap_server)


def _tell_how_to_query(folder: Path, say: Say) -> None:
    tables = folder / "tables"
    say("\n[bold]Everything is stopped; the tables stay.[/] Open the page in a browser:")
    say(f"   {folder / _PAGE}", markup=False)
    say("   or query the tables:")
    say(f"   .venv/bin/offsetstream offsets list --group billing --tables {tables}", markup=False)
    say(f"   .venv/bin/offsetstream groups describe --group billing --members --tables {tables}", markup=False)
    say("   or with anything that reads Delta, from Python for instance:", markup=False)
    say("      import duckdb, deltalake", markup=False)
    say(f"      commits = deltalake.DeltaTable('{tables}/offset_commits').to_pyarrow_dataset()", markup=False)
    say("      duckdb.sql('SELECT group_id, count(*) FROM commits GROUP BY ALL ORDER BY 2 DESC').show()", markup=False)


def _offsetstream(*arguments: str) -> None:
    """Run another command of ours, as a person would; its output goes to the terminal."""
    subprocess.run([*_OFFSETSTREAM, *arguments], check=False)
