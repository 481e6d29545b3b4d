"""No acknowledged commit to a table on S3 is lost.

Run `python -m tests.reliability.s3_commits --help`; the suite runs a part of it (tests/stores/). Writers are
processes. With `zombies` one writer at a time writes and is paused at a random moment, nearly always inside a commit;
another takes over as a job does, and then the first is resumed. With `rivals` two write at the same time. Each notes
its acknowledged commits, and the table's log must have each once. With `--committer spark` Delta's own store for S3
commits: if that loses none, this test proves nothing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from random import Random

import click
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from offsetstream.spark.local import local_session
from offsetstream.tables.create import create_tables
from offsetstream.tables.location import store_at
from offsetstream.tables.names import COMMITS
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import append_rows, read_rows
from offsetstream.tables.store import Store, Transaction
from offsetstream.tables.transaction import BatchId, again_on_conflict, app_id, load_app_id
from testkit.s3_server import S3Server, in_environment, s3_server
from testkit.waiting import await_

_SIGNATURE = ["checkpoint_id", "batch_id", "written_day"]
_TAKEN_OVER = 3  # exit code of a writer that another one has replaced
_RIVALS = 2
_OF_A_TABLE = 2_500  # commits: each write lists the log, which is never cleaned here


@dataclass(frozen=True)
class Figures:
    """The results of a run. `zombies` counts writers that were resumed after another one had taken over."""

    acknowledged: int
    in_the_log: int
    lost: int
    twice: int
    zombies: int = 0


class Writer:
    """A process that writes until it is ended; `acknowledged` has the versions of its acknowledged transactions."""

    def __init__(self, committer: str, tables: str, number: int, folder: Path) -> None:
        self.number = number
        self._file = folder / f"{number}.acknowledged"
        self._file.touch()
        command = [sys.executable, "-m", "tests.reliability.s3_commits", "--writer", committer, tables]
        self.process = subprocess.Popen([*command, str(number), str(self._file)])

    @property
    def acknowledged(self) -> list[int]:
        return [int(line) for line in self._file.read_text().splitlines()]

    def await_versions(self, versions: int) -> None:
        """Wait for this many acknowledged versions; AssertionError if it ends before, or gets none for minutes."""

        def has(enough: int) -> bool:
            assert self.process.poll() is None, f"writer {self.number} has ended: {self.process.returncode}"
            return len(self.acknowledged) >= enough

        for enough in range(len(self.acknowledged) + 1, versions + 1):
            await_(partial(has, enough), lambda: f"writer {self.number} has {len(self.acknowledged)} of {versions}")

    def end(self) -> None:
        for sent in (signal.SIGCONT, signal.SIGKILL):
            self.process.send_signal(sent)
        self.process.wait()


@contextmanager
def _writers() -> Iterator[list[Writer]]:
    found: list[Writer] = []
    try:
        yield found
    finally:
        for writer in found:
            writer.end()


def zombies(server: S3Server, versions: int, seed: int, each: int = 100) -> Figures:
    """Pause writer after writer after about `each` commits, let the next take over, and resume it."""
    tables, random, woken = store_at(server.uri(f"zombies-{seed}")), Random(seed), 0
    create_tables(tables, "cluster-1", "new")
    with tempfile.TemporaryDirectory() as folder, _writers() as writers:
        while sum(len(writer.acknowledged) for writer in writers) < versions:
            number = len(writers) + 1
            _take_over(tables, number)
            writers.append(Writer("driver", tables.name, number, Path(folder)))
            writers[-1].await_versions(random.randrange(each // 5))
            for zombie in writers[-2:-1]:
                before = zombie.acknowledged
                zombie.process.send_signal(signal.SIGCONT)
                assert zombie.process.wait(60) == _TAKEN_OVER
                assert len(zombie.acknowledged) <= len(before) + 1  # of the commit in which it was paused
                woken += 1
            writers[-1].await_versions(each)
            time.sleep(random.random() / 10)
            writers[-1].process.send_signal(signal.SIGSTOP)
        return _compared(server, tables, {app_id(COMMITS): [v for each in writers for v in each.acknowledged]}, woken)


def rivals(server: S3Server, committer: str, versions: int) -> Figures:
    """Let two writers append at the same time, as a job and a zombie do before one notices the other."""
    tables = store_at(server.uri(f"rivals-{committer}"))
    create_tables(tables, "cluster-1", "new")
    with tempfile.TemporaryDirectory() as folder, _writers() as writers:
        writers += [Writer(committer, tables.name, -number, Path(folder)) for number in range(1, _RIVALS + 1)]
        for writer in writers:
            writer.await_versions(versions // _RIVALS)
        told = {_rival(writer.number): writer.acknowledged for writer in writers}
        for writer in writers:
            writer.end()
        return _compared(server, tables, told)


def _rival(number: int) -> str:
    return f"offsetstream/{COMMITS}/rival{number}"


def _take_over(tables: Store, checkpoint: int) -> None:
    """Take over as a starting job does (`Checkpoint.shut_out_older`)."""
    version = BatchId(checkpoint, -1).version
    again_on_conflict(
        lambda: tables.open(COMMITS).commit_nothing(
            *(Transaction(app, version) for app in (app_id(COMMITS), load_app_id(COMMITS)))
        )
    )()


def _compared(server: S3Server, tables: Store, told: dict[str, list[int]], woken: int = 0) -> Figures:
    """Compare the acknowledged commits with the table's log and its rows."""
    made = Counter(_transactions(server, tables))
    rows = Counter((row["offsets_partition"], row["record_offset"]) for row in read_rows(tables.open(COMMITS)))
    acknowledged = [(app, version) for app, versions in told.items() for version in versions]
    twice = [each for each, times in made.items() if times > 1 and each in set(acknowledged)]
    assert len(set(acknowledged)) == len(acknowledged)
    lost = [each for each in acknowledged if not made[each]]
    return Figures(
        acknowledged=len(acknowledged),
        in_the_log=sum(made[each] > 0 for each in acknowledged),
        lost=len(lost),
        twice=len(twice) + sum(times > 1 for times in rows.values()),
        zombies=woken,
    )


def _transactions(server: S3Server, tables: Store) -> Iterator[tuple[str, int]]:
    """Yield each transaction of each commit in the table's log."""
    files = server.files()
    log = f"{tables.name.partition('://')[2]}/{COMMITS}/_delta_log"
    for file in files.get_file_info(pa.fs.FileSelector(log)):
        if file.extension == "json":
            with files.open_input_stream(file.path) as opened:
                for line in opened.read().splitlines():
                    if (made := json.loads(line).get("txn")) is not None:
                        yield made["appId"], made["version"]


def _row(number: int, offset: int) -> pa.Table:
    schema = load_schema(COMMITS).arrow
    row = {"offsets_partition": abs(number), "log_id": 0, "record_offset": offset, "group_id": "g"}
    return pa.Table.from_pylist([dict.fromkeys(schema.names) | row], schema=schema)


def write(committer: str, tables: str, number: int, file: Path) -> None:
    """Append row after row until this process is ended or another writer takes over."""
    with file.open("a") as told:
        append = _appender(committer, tables, number)
        for step in count():
            version = append(step)
            if version is None:
                sys.exit(_TAKEN_OVER)
            told.write(f"{version}\n")
            told.flush()


def _appender(committer: str, name: str, number: int) -> Callable[[int], int | None]:
    tables = store_at(name)
    if number > 0:

        def as_the_job(step: int) -> int | None:
            batch = BatchId(number, step)
            row = _row(number, step).drop_columns(_SIGNATURE)
            return batch.version if append_rows(tables, COMMITS, row, batch) is not None else None

        return as_the_job

    @again_on_conflict
    def as_a_rival(step: int) -> int:
        today = pa.array([datetime.now(UTC).date()])
        rows = _row(number, step).drop_columns(["written_day"]).append_column("written_day", today)
        tables.open(COMMITS).append([rows], Transaction(_rival(number), step))
        return step

    return as_a_rival if committer == "driver" else _by_spark(name, number)


def _by_spark(name: str, number: int) -> Callable[[int], int]:
    spark: SparkSession = local_session("local[1]", json.loads(os.environ["SPARK_OF_WRITERS"]))

    def append(step: int) -> int:
        rows = spark.createDataFrame(_row(number, step)).withColumn("written_day", F.current_date())
        writer = rows.coalesce(1).write.format("delta").mode("append")
        writer.option("txnAppId", _rival(number)).option("txnVersion", step).save(f"{name}/{COMMITS}")
        return step

    return append


@click.command()
@click.option("--versions", default=10_000, help="How many commits are to be acknowledged.")
@click.option("--committer", type=click.Choice(["driver", "spark"]), default="driver", help="Who commits as rivals.")
@click.option("--seed", default=1, help="Of the moments at which writers are stopped.")
@click.option("--writer", nargs=4, hidden=True)
def main(versions: int, committer: str, seed: int, writer: tuple[str, str, str, str] | None) -> None:
    """Count lost acknowledged commits on a real S3 server."""
    if writer is not None:
        write(writer[0], writer[1], int(writer[2]), Path(writer[3]))
        return
    with s3_server() as server, in_environment(server.environment):
        os.environ["SPARK_OF_WRITERS"] = json.dumps(server.spark_conf)
        done = 0
        while committer == "driver" and done < versions:
            found = zombies(server, min(versions, _OF_A_TABLE), seed + done)
            done += found.acknowledged
            print(f"{done} of {versions}, zombies:", found, flush=True)
        print(f"rivals, by {committer}:", rivals(server, committer, min(versions, _OF_A_TABLE)))


if __name__ == "__main__":
    main()
