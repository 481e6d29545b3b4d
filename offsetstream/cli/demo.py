"""`offsetstream demo`: a real broker, real clients, the real job, and five troubles that its tables answer for."""

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
from click.core import ParameterSource
from rich.console import Console

from offsetstream.cli.options import BROKERS
from offsetstream.cli.signals import end_when_asked
from offsetstream.cluster.client import Cluster
from offsetstream.demo.troubles import LIMITS, TROUBLES, Shop, Trouble, keep_busy
from offsetstream.demo.workload import MIN_GROUPS, run_workload
from offsetstream.embedded.kafka import DEFAULT_VERSION, EmbeddedKafka
from offsetstream.errors import NoTableError, OffsetstreamError, UsageError
from offsetstream.tables.beside import THRESHOLDS
from offsetstream.tables.location import store_at
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.names import OFFSETS_PARTITIONS, OWNED
from offsetstream.views.reader import ViewReader

_MARKER = ".offsetstream-demo"
_TABLES, _PAGE, _LOG = "tables", "report.html", "job.log"
_TIMEOUT = 180.0  # seconds
_GROUPS = 55
_SEED = 1
_LOOK_SECONDS = 0.5
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
@click.option("--kafka-version", default=DEFAULT_VERSION, show_default=True, help="Kafka to start.")
@click.option("--brokers", type=click.Choice(["1", "3"]), default="1", show_default=True, help="Number of brokers.")
@click.option("--port", type=click.IntRange(1, 65_535), help="Port of the first broker [default: a free one].")
@click.option("--tables", default="demo-tables", show_default=True, metavar="DIR", help="Folder for the tables.")
@click.option(
    "--groups",
    type=click.IntRange(min=MIN_GROUPS + len(TROUBLES)),
    default=_GROUPS,
    show_default=True,
    help="Number of consumer groups; five of them get into trouble.",
)
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
    help="With --bootstrap-server: time between two changes of the groups.",
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
    """Run the streaming job on a temporary local Kafka, and find five troubles with its tables.

    Starts a broker, the job, and clients of some fifty healthy groups. Then makes five troubles, one after the other,
    and runs the command that finds each. Stops everything it started; the tables and a page stay.
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
    folder = _fresh_folder(tables)
    with ExitStack() as running:
        say(f"[bold]1. A real Kafka {kafka_version} broker[/] (downloaded once, then cached)")
        kafka = running.enter_context(EmbeddedKafka(kafka_version, brokers, port=port))
        say(f"   listens at {kafka.bootstrap_server}")
        say("[bold]2. The streaming job[/] starts, which takes Spark a while")
        stage = running.enter_context(_Stage(kafka.bootstrap_server, folder, groups, say))
        say("[bold]3. The clients of a shop[/] make healthy groups meanwhile")
        running.enter_context(
            run_workload(
                kafka.bootstrap_server,
                groups=groups - len(TROUBLES),
                seed=_SEED,
                say=lambda line: say(f"   {line}", markup=False),
            )
        )
        shop = running.enter_context(Shop(kafka.bootstrap_server, _SEED))
        say(f"   five more groups joined: {', '.join(trouble.group for trouble in TROUBLES)}", markup=False)
        stage.await_verdicts({})
        stage.silence_job()
        say("[bold]4. All groups are well[/]: ask this each morning")
        stage.show("groups", "status", head=4)
        shop.open()
        say("   the shop is open: it writes records every second")
        say("[bold]5. Five troubles[/], one after the other, each with the command that finds it")
        stage.play_troubles(shop)
        shop.write_no_more()
        stage.await_verdicts(_VERDICTS)
        with stage.page_written():
            say("[bold]6. The five answers[/]")
            stage.show("groups", "status", head=1 + len(TROUBLES))
            stage.sum_up()
            say("\n[bold]7. All of it on one page[/]; then the job stops between two batches")
            stage.stop_job()
    _tell_how_to_go_on(folder, say)


class _Stage:
    """The job that writes the tables in a folder while the context lasts, and the commands that ask them."""

    def __init__(self, bootstrap_server: str, folder: Path, groups: int, say: Say) -> None:
        self._bootstrap_server, self._folder, self._groups, self._say = bootstrap_server, folder, groups, say
        self._begun = time.monotonic()
        self._tables, self._log = str(folder / _TABLES), folder / _LOG
        self._is_silent = threading.Event()
        self._rows: dict[str, dict[str, Any]] = {}  # of `groups status`, as last looked at
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
        """Have what the job says in its log only."""
        self._is_silent.set()
        self._say(f"   the job streams; what it says from here on is in {self._log}", markup=False)

    def await_verdicts(self, wanted: Mapping[str, str], *, others_are_well: bool = True) -> None:
        """Wait until `groups status` has these verdicts of these groups, and says of all others that they are well."""
        cluster = Cluster(self._bootstrap_server)
        ends = cluster.partition_ends(cluster.topic_partitions())
        self._await(lambda: self._not_applied({number: end.last_stable_offset for number, end in ends.items()}))
        self._await(lambda: self._amiss(wanted, others_are_well=others_are_well))

    def _await(self, missing: Callable[[], Sequence[str]]) -> None:
        deadline = time.monotonic() + _TIMEOUT
        while (left := missing()) != []:
            if self._job.poll() is not None:
                raise OffsetstreamError(f"the job ended with exit code {self._job.returncode}: see {self._log}")
            if time.monotonic() > deadline:
                raise OffsetstreamError(
                    f"{_TIMEOUT:.0f} s were not enough for this: {'; '.join(left)}: see {self._log}"
                )
            time.sleep(_LOOK_SECONDS)

    def _not_applied(self, ends: Mapping[int, int]) -> list[str]:
        """Return the partitions of which the tables lack records; this costs much less than the verdicts."""
        try:
            rows = Lookup(store_at(self._tables)).rows(
                OFFSETS_PARTITIONS, ["offsets_partition", "load_state", "next_offset"]
            )
        except NoTableError:  # the job has not made them yet
            rows = []
        applied = {row["offsets_partition"]: row["next_offset"] for row in rows if row["load_state"] == OWNED}
        return [f"partition {number} is not read" for number, end in ends.items() if applied.get(number, 0) < end]

    def _amiss(self, wanted: Mapping[str, str], *, others_are_well: bool) -> list[str]:
        self._rows = {row["group_id"]: row for row in ViewReader(store_at(self._tables)).rows("group_status")}
        if len(self._rows) != self._groups:
            return [f"there are {len(self._rows)} groups, not {self._groups}"]
        return [
            f"{group} is {row['verdict']} ({row['verdict_reason']})"
            for group, row in self._rows.items()
            if (row["verdict"] != wanted[group] if group in wanted else others_are_well and row["level"] != "OK")
        ]

    def play_troubles(self, shop: Shop) -> None:
        """Make each trouble, wait until the job has seen it, and show the command that finds it.

        Meanwhile the next trouble begins: what begins takes seconds to be seen.
        """
        store = store_at(self._tables)
        store.create(THRESHOLDS, {})
        store.open(THRESHOLDS.name).append([pa.Table.from_pylist(list(LIMITS), schema=THRESHOLDS.arrow)])
        with ThreadPoolExecutor(1) as beginning:
            begun = beginning.submit(TROUBLES[0].begin, shop)
            for number, trouble in enumerate(TROUBLES, start=1):
                self._say(f"\n   [bold]{number}. {trouble.group}[/] {trouble.what}")
                begun.result()
                if number < len(TROUBLES):
                    begun = beginning.submit(TROUBLES[number].begin, shop)
                self.await_verdicts({trouble.group: trouble.verdict}, others_are_well=False)
                self._say(f"   {trouble.question}", markup=False)
                self.show(*self._command(trouble))

    def _command(self, trouble: Trouble) -> Sequence[str]:
        cluster = ("--bootstrap-server", self._bootstrap_server) if trouble.asks_cluster else ()
        return (*trouble.command, *cluster)

    def show(self, *command: str, head: int | None = None) -> None:
        """Show a command as you would type it, and its answer, or the first lines and the last of it."""
        self._say(f"   [bold]$ offsetstream {shlex.join(command)}[/]")
        done = self._run(*command, capture_output=True)
        lines = (done.stdout or done.stderr).rstrip().splitlines()
        if head is not None and len(lines) > head + 2:
            lines[head:-1] = ["…"]
        for line in lines:
            self._say(f"   {line}", markup=False)

    def sum_up(self) -> None:
        """Show the five questions again, each with its command and the verdict that it explains."""
        for trouble in TROUBLES:
            row = self._rows[trouble.group]
            self._say(f"\n   [bold]{trouble.question}[/] {trouble.group} is {row['verdict']}: {row['verdict_reason']}")
            self._say(f"   offsetstream {shlex.join(self._command(trouble))}", markup=False)

    @contextmanager
    def page_written(self) -> Iterator[None]:
        """Write the page while the context lasts; then make the tables' last look their now, so that answers stay."""
        since = f"{time.monotonic() - self._begun:.0f}s"
        with ThreadPoolExecutor(1) as beside:
            page = beside.submit(self._run, "report", "--file", str(self._folder / _PAGE), "--since", since)
            yield
            page.result()
        self._run("maintain", "--end")

    def stop_job(self) -> None:
        """Stop the job between two batches."""
        self._run("stop")
        if self._job.wait(_TIMEOUT) != 0:
            raise OffsetstreamError(f"the job ended with exit code {self._job.returncode}: see {self._log}")

    def _run(self, *command: str, capture_output: bool = False) -> subprocess.CompletedProcess[str]:
        """Run another command of ours on these tables, as you would."""
        return subprocess.run(
            [*_OFFSETSTREAM, *command],
            env={**os.environ, "OFFSETSTREAM_TABLES": self._tables},
            capture_output=capture_output,
            encoding="utf-8",
            errors="replace",
            check=False,
        )


def _tell_how_to_go_on(folder: Path, say: Say) -> None:
    say("\n[bold]Everything is stopped; the tables stay as they are.[/] Open the page in a browser:")
    say(f"   {folder / _PAGE}", markup=False)
    say("   or ask the tables yourself:")
    say(f"   export OFFSETSTREAM_TABLES={shlex.quote(str(folder / _TABLES))}", markup=False)
    say("   offsetstream groups describe --group billing", markup=False)
    say(
        '   offsetstream sql "SELECT group_id, count(*) FROM offset_commits GROUP BY ALL ORDER BY 2 DESC"', markup=False
    )


def _fresh_folder(folder: Path) -> Path:
    """Make the folder, in place of an earlier demo's: every demo's cluster is another one. Git sees nothing of it."""
    if folder.exists() and not (folder / _MARKER).exists():
        raise UsageError(f"{folder} exists and is not an earlier demo's: name another folder by --tables")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / _MARKER).touch()
    (folder / ".gitignore").write_text("*\n", "utf-8")
    return folder.absolute()
