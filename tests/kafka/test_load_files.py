"""Tables from log segments equal those of a job on the broker that wrote them."""

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession
from rich.console import Console

from offsetstream.cli.main import main
from offsetstream.demo.topics import commit_in_transaction, commit_plainly, create_topics
from offsetstream.demo.workload import run_workload
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.errors import SegmentError, TablesError, UsageError
from offsetstream.progress import Progress
from offsetstream.stream.apply import load
from offsetstream.stream.files import FilesLoad, SegmentReader
from offsetstream.stream.settings import FilesSettings
from offsetstream.tables.names import DECODED_TABLES, RECORD_TABLES, STATE_TABLES
from offsetstream.tables.schema import load_schema
from offsetstream.views.reader import ViewReader
from tests.kafka.jobs import JobRunner
from tests.kafka.test_raw_load import open_transaction

pytestmark = pytest.mark.long

PLACE = ("group_id", "topic", "partition")
WRITTEN_BY = {"checkpoint_id", "batch_id"}  # the columns that say which job wrote a row


class FilesRunner(JobRunner):
    """Loads files, and reads the tables."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, "127.0.0.1:1", folder)

    def load(self, *places: Path, names: dict[str, str] | None = None, stop: threading.Event | None = None) -> None:
        progress = Progress(Console(file=self.said, force_terminal=False, soft_wrap=True))
        settings = FilesSettings(tables=self.tables.root)
        session = nullcontext(self._spark)
        FilesLoad(settings, [*map(str, places)], names or {}, session, progress, stop or threading.Event()).run()

    @property
    def warnings(self) -> list[str]:
        return [line.split(" WARN  ")[1] for line in self.said.getvalue().splitlines() if " WARN  " in line]

    def ask(self, *arguments: str) -> str:
        result = CliRunner().invoke(main, [*arguments, "--tables", self.tables.root])
        assert result.exit_code == 0, result.output
        return result.output


@pytest.fixture(scope="module")
def job_and_files(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[JobRunner, Path]]:
    """A job's tables, and the log directory of its broker, which wrote all kinds of records and then stopped.

    The high watermark is where the job ended: the groups went on until the broker stopped.
    """
    folder = tmp_path_factory.mktemp("files")
    with EmbeddedKafka() as kafka:
        job = JobRunner(spark, kafka.bootstrap_server, folder)
        with run_workload(kafka.bootstrap_server, groups=40, seed=7, say=print):
            places = [TopicPartition("orders", number, 1) for number in range(3)]
            for number in range(4):
                commit_in_transaction(kafka.bootstrap_server, f"ledger-{number}", places, abort=bool(number % 2))
            with open_transaction(kafka.bootstrap_server, "open"):
                job.run_once()
                kafka.stop_broker(1)
                shutil.copytree(kafka.folder, folder / "log")
                kafka.start_broker(1)
    ends = job.rows("offsets_partitions", "offsets_partition", "next_offset")
    (marks,) = (folder / "log").rglob("replication-offset-checkpoint")
    rows = "".join(f"__consumer_offsets {number} {end}\n" for number, end in ends)
    marks.write_text(f"0\n{len(ends)}\n{rows}")
    yield job, folder / "log"


@pytest.fixture(scope="module")
def loaded(
    spark: SparkSession, job_and_files: tuple[JobRunner, Path], tmp_path_factory: pytest.TempPathFactory
) -> FilesRunner:
    runner = FilesRunner(spark, tmp_path_factory.mktemp("loaded"))
    runner.load(job_and_files[1])
    return runner


@pytest.mark.parametrize("table", [*STATE_TABLES, *RECORD_TABLES, *DECODED_TABLES])
def test_the_tables_equal_those_of_a_job(
    job_and_files: tuple[JobRunner, Path], loaded: FilesRunner, table: str
) -> None:
    columns = [name for name in load_schema(table).column_names if name not in WRITTEN_BY]
    rows = loaded.rows(table, *columns)
    assert rows == job_and_files[0].rows(table, *columns)
    assert rows or table == "undecodable_records"


def test_a_load_says_what_it_read_and_where_the_tables_end(loaded: FilesRunner) -> None:
    assert loaded.warnings == []
    assert ", read from files)" in loaded.said.getvalue()
    newest = max(time for (time,) in loaded.rows("group_records", "record_timestamp"))
    (ended_at,) = loaded.values("cluster", "ended_at")
    assert abs((ended_at - newest).total_seconds()) < 60  # a marker or an open transaction may be newer
    assert f"they end at {ended_at.isoformat()[:19]}" in loaded.ask("groups", "status")
    assert loaded.values("offsets_partitions", "caught_up_at") == {ended_at}


def test_the_history_is_complete_from_the_first_record(loaded: FilesRunner) -> None:
    """Nothing was compacted."""
    times = sorted(time for (time,) in loaded.rows("offset_commits", "record_timestamp"))
    middle = times[len(times) // 2]
    found = ViewReader(loaded.tables).rows("offsets_at", at=middle)
    assert found
    assert [row for row in found if row["unknown_reason"] is not None] == []
    first = min(loaded.values("offsets_partitions", "history_complete_from"))
    assert first <= times[0]


def test_questions_are_answered_at_the_end_of_the_log(
    job_and_files: tuple[JobRunner, Path], loaded: FilesRunner
) -> None:
    for question in (("groups", "list"), ("lag", "--all-groups"), ("groups", "rebalances"), ("offsets", "audit")):
        assert loaded.ask(*question)
    replayed = json.loads(CliRunner().invoke(main, ["replay", str(job_and_files[1])]).stdout)
    expected = {tuple(each[name] for name in (*PLACE, "offset")) for each in replayed["offsets"]}
    found = set(loaded.rows("committed_offsets", *PLACE, "committed_offset"))
    assert len(found & expected) > len(expected) - 5  # which has what came after the high watermark
    assert found


def test_the_same_load_again_changes_nothing(job_and_files: tuple[JobRunner, Path], loaded: FilesRunner) -> None:
    before = {table: loaded.rows(table) for table in (*STATE_TABLES, *RECORD_TABLES, *DECODED_TABLES)}
    loaded.load(job_and_files[1])
    assert {table: loaded.rows(table) for table in before} == before


def test_tables_of_files_are_their_own(
    spark: SparkSession, job_and_files: tuple[JobRunner, Path], loaded: FilesRunner, tmp_path: Path
) -> None:
    """Neither a job nor other files add to them, and files add nothing to the tables of a job."""
    job, log = job_and_files
    other = tmp_path / "log"
    shutil.copytree(log, other)
    (most,) = sorted(other.rglob("__consumer_offsets-*/*.log"), key=lambda path: path.stat().st_size)[-1:]
    most.write_bytes(b"")
    with pytest.raises(TablesError, match="from other files than these: name a new folder with --tables"):
        loaded.load(other)
    of_job = FilesRunner(spark, tmp_path)
    of_job.tables = job.tables
    with pytest.raises(
        TablesError, match=r"belongs to the cluster [\w-]+, but this is the cluster [\w-]+ \(from files\)"
    ):
        of_job.load(log)


def test_a_damaged_batch_is_named(spark: SparkSession, job_and_files: tuple[JobRunner, Path], tmp_path: Path) -> None:
    log, runner = tmp_path / "log", FilesRunner(spark, tmp_path)
    shutil.copytree(job_and_files[1], log)
    (most,) = sorted(log.rglob("__consumer_offsets-*/*.log"), key=lambda path: path.stat().st_size)[-1:]
    data = bytearray(most.read_bytes())
    data[len(data.rstrip(b"\0")) // 2] ^= 1
    most.write_bytes(data)
    with pytest.raises(SegmentError, match=rf"{most}: the batch at position \d+ \(offset \d+\) is damaged"):
        runner.load(log)


def test_a_stopped_load_continues(
    spark: SparkSession,
    job_and_files: tuple[JobRunner, Path],
    loaded: FilesRunner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner, stop = FilesRunner(spark, tmp_path), threading.Event()
    read, reads = SegmentReader.read, list[dict[int, int]]()

    def stopping(reader: SegmentReader, *places: Any) -> Any:
        stop.set()
        reads.append(places[0])
        return read(reader, *places)

    monkeypatch.setattr(SegmentReader, "read", stopping)
    monkeypatch.setattr(load, "MAX_OFFSETS_AT_ONCE", 1)
    runner.load(job_and_files[1], stop=stop)
    assert "Stopped: the same command continues here" in runner.said.getvalue()
    assert runner.values("cluster", "ended_at") == set()
    runner.load(job_and_files[1])
    assert len(reads[0]) == 1
    assert not any(reads[0].keys() & each.keys() for each in reads[1:])
    for table in (*STATE_TABLES, *RECORD_TABLES, *DECODED_TABLES):
        columns = [name for name in load_schema(table).column_names if name not in WRITTEN_BY]
        assert runner.rows(table, *columns) == loaded.rows(table, *columns)


def test_files_of_two_clusters_or_without_records_are_refused(
    spark: SparkSession, job_and_files: tuple[JobRunner, Path], tmp_path: Path
) -> None:
    runner = FilesRunner(spark, tmp_path)
    place = tmp_path / "other" / "__consumer_offsets-3"
    place.mkdir(parents=True)
    (place / f"{0:020}.log").write_bytes(b"")
    with pytest.raises(UsageError, match="the files have no record"):
        runner.load(place.parent)
    (place.parent / "meta.properties").write_text("cluster.id=other")
    with pytest.raises(UsageError, match="the files are of several clusters"):
        runner.load(place.parent, job_and_files[1])


def test_of_three_brokers_the_files_of_the_last_leaders_are_read(spark: SparkSession, tmp_path: Path) -> None:
    """Broker 3 was away when the last commits were written. A follower learns of a high watermark late."""
    groups = {f"group-{number}": [TopicPartition("orders", 0, 1)] for number in range(20)}
    later = {group_id: [TopicPartition("orders", 0, 2)] for group_id in groups}
    properties = {"offsets.topic.replication.factor": "3", "offsets.topic.num.partitions": "5"}
    with EmbeddedKafka(brokers=3, properties=properties) as kafka:
        create_topics(admin_client(kafka.bootstrap_server))
        commit_plainly(kafka.bootstrap_server, groups)
        kafka.stop_broker(3)
        commit_plainly(kafka.bootstrap_server, later)
        for broker in (2, 1):
            kafka.stop_broker(broker)
        shutil.copytree(kafka.folder, tmp_path / "log")
    (away,) = (tmp_path / "log").rglob("broker-3")
    for name, places in (("all", [tmp_path / "log"]), ("one", [away])):
        runner = FilesRunner(spark, tmp_path / name)
        runner.load(*places)
        assert runner.warnings == []
        found = dict(runner.rows("committed_offsets", "group_id", "committed_offset"))
        if name == "all":
            assert found == dict.fromkeys(groups, 2)
        else:
            assert set(found.values()) == {1}
