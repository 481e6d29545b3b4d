"""`offsetstream demo`: a temporary broker, real clients, the streaming job, and five troubles to find."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import click
import pyarrow as pa
from rich.console import Console

from offsetstream.cli.options import BROKERS, typed_flags
from offsetstream.cli.process import stop_on_signal
from offsetstream.cluster.client import Cluster
from offsetstream.demo.troubles import LIMITS, TROUBLES, Shop, Trouble, keep_busy
from offsetstream.demo.workload import MIN_GROUPS, run_workload
from offsetstream.embedded.jvm import DEFAULT_VERSION
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.errors import NoTableError, OffsetstreamError, UsageError
from offsetstream.tables.location import store_at
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.names import OFFSETS_PARTITIONS, OWNED
from offsetstream.tables.schema import THRESHOLDS
from offsetstream.views.reader import ViewReader

_MARKER = ".offsetstream-demo"
_TABLES, _PAGE, _LOG = "tables", "report.html", "job.log"
_TIMEOUT = 180.0  # seconds
_GROUPS = 55
_SEED = 1
_CHECK_SECONDS = 0.5
_VERDICTS = {trouble.group: trouble.verdict for trouble in TROUBLES}
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
@click.option("--kafka-version", default=DEFAULT_VERSION, show_default=True, help="Version of the Kafka to start.")
@click.option(
    "--brokers", type=click.Choice(["1", "3"]), default="1", show_default=True, help="Number of brokers to start."
)
@click.option("--port", type=click.IntRange(1, 65_535), help="Port of the first broker (default: a free port).")
@click.option(
    "--tables",
    default="demo-tables",
    show_default=True,
    metavar="DIR",
    help="Folder for the tables, the page and the job's log.",
)
@click.option(
    "--groups",
    type=click.IntRange(min=MIN_GROUPS + len(TROUBLES)),
    default=_GROUPS,
    show_default=True,
    help="Number of consumer groups, including the five that get into trouble.",
)
@click.option(
    "--bootstrap-server",
    type=BROKERS,
    metavar="HOST:PORT",
    allow_from_autoenv=False,  # it deletes groups: a variable must not point it at a cluster in use
    help="Run only the demo's clients, on this cluster, until you stop them. "
    "They delete groups, so use a cluster that nobody else uses.",
)
@click.option(
    "--pause",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between two changes of the groups (with --bootstrap-server).",
)
def demo(
    kafka_version: str,
    brokers: str,
    port: int | None,
    tables: str,
    groups: int,
    bootstrap_server: str | None,
    pause: float,
) -> None:
    """Run the whole pipeline on a temporary local Kafka.

    Starts a broker, the streaming job, and the clients of some fifty healthy groups. Then five groups get into
    trouble, one after the other, and you see the command that finds each cause. It takes about two minutes.

    At the end, the demo stops everything that it started. The tables and a page stay.
    """
    _reject_option_of_other_mode(bootstrap_server)
    say = Console(highlight=False, soft_wrap=True).print
    if bootstrap_server is None:
        _full_demo(kafka_version, int(brokers), port, Path(tables), groups, say)
    else:
        stopped = threading.Event()
        with stop_on_signal(stopped.set):
            keep_busy(
                bootstrap_server, groups=groups, pause=pause, stopped=stopped, say=lambda line: say(line, markup=False)
            )


def _reject_option_of_other_mode(bootstrap_server: str | None) -> None:
    unusable = ("kafka_version", "brokers", "port", "tables") if bootstrap_server else ("pause",)
    if given := typed_flags(unusable):
        rule = "cannot be combined with" if bootstrap_server else "needs"
        raise UsageError(f"{given[0]} {rule} --bootstrap-server")


def _full_demo(kafka_version: str, brokers: int, port: int | None, tables: Path, groups: int, say: Say) -> None:
    folder = _fresh_folder(tables)
    with ExitStack() as running:
        say(f"[bold]1. Start Kafka {kafka_version}[/] (the first run downloads it)")
        kafka = running.enter_context(EmbeddedKafka(kafka_version, brokers, port=port))
        say(f"   Kafka listens at {kafka.bootstrap_server}.")
        say("[bold]2. Start the streaming job[/] (Spark takes a while to start; meanwhile, step 3 begins)")
        stage = running.enter_context(_Stage(kafka.bootstrap_server, folder, groups, say))
        say("[bold]3. Start the clients of a web shop[/]: healthy consumer groups of every kind")
        running.enter_context(
            run_workload(
                kafka.bootstrap_server,
                groups=groups - len(TROUBLES),
                seed=_SEED,
                say=lambda line: say(f"   {line}", markup=False),
            )
        )
        shop = running.enter_context(Shop(kafka.bootstrap_server, _SEED))
        say(f"   Five more groups started: {', '.join(trouble.group for trouble in TROUBLES)}.", markup=False)
        say("   Waiting until the job has read all commits …")
        stage.await_verdicts({})
        stage.silence_job()
        say("[bold]4. Check all groups[/]: everything is OK. This is the command for each morning.")
        stage.show("groups", "status", head=4)
        shop.open()
        say("   The shop is open: it now produces records every second.")
        say("[bold]5. Make five troubles[/], one after the other. Each has a command that finds its cause.")
        stage.play_troubles(shop)
        shop.stop_producing()
        stage.await_verdicts(_VERDICTS)
        # Before the answers: soon the group of the last trouble is silent for so long that it counts as stopped.
        say("\n[bold]6. Stop the job[/]")
        stage.stop_job()
        with stage.page_written():
            say("\n[bold]7. The five answers[/]")
            stage.show("groups", "status", head=1 + len(TROUBLES))
            stage.sum_up()
            say("\n[bold]8. Write everything to one page[/]")
    _show_next_steps(folder, say)


class _Stage:
    """The streaming job, which runs while the context lasts, and the commands that query its tables."""

    def __init__(self, bootstrap_server: str, folder: Path, groups: int, say: Say) -> None:
        self._bootstrap_server, self._folder, self._groups, self._say = bootstrap_server, folder, groups, say
        self._started_at = time.monotonic()
        self._tables, self._log = str(folder / _TABLES), folder / _LOG
        self._is_silent = threading.Event()
        self._status: dict[str, dict[str, Any]] = {}  # the latest row of `group_status` by group
        checkpoint = str(folder / "checkpoints")
        self._job = subprocess.Popen(
            [
                *(*_OFFSETSTREAM, "run", "--bootstrap-server", bootstrap_server, "--tables", self._tables),
                *("--checkpoint", checkpoint, "--trigger", "1 second", "--sample-interval", "2"),
            ],
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read_job, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._job.poll() is None:
            self._job.kill()
            self._job.wait()
        self._reader.join()

    def _read_job(self) -> None:
        with self._log.open("w", encoding="utf-8") as log:
            for line in self._job.stderr or ():
                log.write(line)
                log.flush()
                if not self._is_silent.is_set():
                    sys.stderr.write(line)
                    sys.stderr.flush()

    def silence_job(self) -> None:
        """Keep the job's log lines out of the terminal from now on."""
        self._is_silent.set()
        self._say(f"   The job is streaming. From here on, its log lines go to {self._log}.", markup=False)

    def await_verdicts(self, expected: Mapping[str, str], *, others_ok: bool = True) -> None:
        """Wait until `groups status` has the expected verdict for each of these groups, and level OK for all others.

        With `others_ok=False`, the other groups may have any level. Raises OffsetstreamError after three minutes, or
        when the job ends.
        """
        cluster = Cluster(self._bootstrap_server)
        ends = cluster.partition_ends(cluster.topic_partitions())
        self._await(lambda: self._unread_partitions({number: end.last_stable_offset for number, end in ends.items()}))
        self._await(lambda: self._wrong_verdicts(expected, others_ok=others_ok))

    def _await(self, missing: Callable[[], Sequence[str]]) -> None:
        deadline = time.monotonic() + _TIMEOUT
        while (problems := missing()) != []:
            if self._job.poll() is not None:
                raise OffsetstreamError(f"The job ended with exit code {self._job.returncode}. Its log is {self._log}")
            if time.monotonic() > deadline:
                raise OffsetstreamError(f"After {_TIMEOUT:.0f} s: {'; '.join(problems)}. The job's log is {self._log}")
            time.sleep(_CHECK_SECONDS)

    def _unread_partitions(self, ends: Mapping[int, int]) -> list[str]:
        """Return one line for each offsets partition that the job has not read to its end.

        This query is much cheaper than the verdicts.
        """
        try:
            rows = Lookup(store_at(self._tables)).rows(
                OFFSETS_PARTITIONS, ["offsets_partition", "load_state", "next_offset"]
            )
        except NoTableError:  # the job has not created them yet
            rows = []
        applied = {row["offsets_partition"]: row["next_offset"] for row in rows if row["load_state"] == OWNED}
        return [
            f"offsets partition {number} is not read to its end"
            for number, end in ends.items()
            if applied.get(number, 0) < end
        ]

    def _wrong_verdicts(self, expected: Mapping[str, str], *, others_ok: bool) -> list[str]:
        self._status = {row["group_id"]: row for row in ViewReader(store_at(self._tables)).rows("group_status")}
        if len(self._status) != self._groups:
            return [f"the tables have {len(self._status)} groups, not {self._groups}"]
        return [
            f"{group} is {row['verdict']} ({row['verdict_reason']})"
            for group, row in self._status.items()
            if (row["verdict"] != expected[group] if group in expected else others_ok and row["level"] != "OK")
        ]

    def play_troubles(self, shop: Shop) -> None:
        """Start each trouble, wait until the tables show it, and show the command that finds its cause.

        The next trouble already starts meanwhile, because the job needs some seconds to see each.
        """
        store = store_at(self._tables)
        store.create(THRESHOLDS, {})
        store.open(THRESHOLDS.name).append([pa.Table.from_pylist(list(LIMITS), schema=THRESHOLDS.arrow)])
        with ThreadPoolExecutor(1) as starter:
            started = starter.submit(TROUBLES[0].start, shop)
            for number, trouble in enumerate(TROUBLES, start=1):
                self._say(f"\n   [bold]{number}. {trouble.group}[/] {trouble.description}")
                started.result()
                if number < len(TROUBLES):
                    started = starter.submit(TROUBLES[number].start, shop)
                self.await_verdicts({trouble.group: trouble.verdict}, others_ok=False)
                self._say(f"   {trouble.question}", markup=False)
                self.show(*self._command(trouble))

    def _command(self, trouble: Trouble) -> Sequence[str]:
        cluster = ("--bootstrap-server", self._bootstrap_server) if trouble.needs_cluster else ()
        return (*trouble.command, *cluster)

    def show(self, *command: str, head: int | None = None) -> None:
        """Print a command as you would type it, and its output (with `head`: the first lines and the last one)."""
        self._say(f"   [bold]$ offsetstream {shlex.join(command)}[/]")
        result = self._run(*command, capture_output=True)
        lines = (result.stdout or result.stderr).rstrip().splitlines()
        if head is not None and len(lines) > head + 2:
            lines[head:-1] = ["…"]
        for line in lines:
            self._say(f"   {line}", markup=False)

    def sum_up(self) -> None:
        """Print the five questions again, each with the verdict and the command that explains it."""
        for trouble in TROUBLES:
            row = self._status[trouble.group]
            self._say(f"\n   [bold]{trouble.question}[/] {trouble.group} is {row['verdict']}: {row['verdict_reason']}")
            note = "  # needs the running Kafka" if trouble.needs_cluster else ""
            self._say(f"   offsetstream {shlex.join(self._command(trouble))}{note}", markup=False)

    @contextmanager
    def page_written(self) -> Iterator[None]:
        """Write the page while the body of the context runs."""
        since = f"{time.monotonic() - self._started_at:.0f}s"
        with ThreadPoolExecutor(1) as writer:
            page = writer.submit(self._run, "report", "--file", str(self._folder / _PAGE), "--since", since)
            yield
            page.result()

    def stop_job(self) -> None:
        """Stop the job between two batches, then end the tables' time.

        After `maintain --end`, queries measure ages up to the job's last sample. So they answer later as in the demo.
        """
        self._run("stop")
        if self._job.wait(_TIMEOUT) != 0:
            raise OffsetstreamError(f"The job ended with exit code {self._job.returncode}. Its log is {self._log}")
        self._run("maintain", "--end")

    def _run(self, *command: str, capture_output: bool = False) -> subprocess.CompletedProcess[str]:
        """Run an offsetstream command on these tables."""
        return subprocess.run(
            [*_OFFSETSTREAM, *command],
            env={**os.environ, "OFFSETSTREAM_TABLES": self._tables},
            capture_output=capture_output,
            encoding="utf-8",
            errors="replace",
            check=False,
        )


def _show_next_steps(folder: Path, say: Say) -> None:
    say("\n[bold]The demo is over. Kafka, the job and all clients have stopped; the tables stay.[/]")
    say("   Open the page in a browser:")
    say(f"   {folder / _PAGE}", markup=False)
    say("   Or query the tables yourself:")
    say(f"   export OFFSETSTREAM_TABLES={shlex.quote(str(folder / _TABLES))}", markup=False)
    say("   offsetstream groups describe --group billing", markup=False)
    say(
        '   offsetstream sql "SELECT group_id, count(*) FROM offset_commits GROUP BY ALL ORDER BY 2 DESC"', markup=False
    )


def _fresh_folder(folder: Path) -> Path:
    """Create the folder, ignored by Git. Delete an earlier demo's folder first, since each demo has a new cluster."""
    if folder.exists() and not (folder / _MARKER).exists():
        raise UsageError(f"{folder} exists, and no demo created it. Name another folder with --tables")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / _MARKER).touch()
    (folder / ".gitignore").write_text("*\n", "utf-8")
    return folder.absolute()
