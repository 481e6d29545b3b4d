"""The job as a process, as users run it: signals, a second job, spark-submit, and another cluster."""

import os
import shutil
import signal
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from offsetstream.codec.records import encode_record
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.demo.topics import commit_plainly, create_topics
from offsetstream.embedded.artifacts import resolve
from offsetstream.embedded.clients import QUIET, admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.spark.session import connectors
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.path_store import PathStore
from testkit.garbage import produce
from testkit.processes import JobProcess, RunningProcess, offsetstream, printed
from tests.kafka.jobs import JobRunner

pytestmark = pytest.mark.long

TOPIC = "__consumer_offsets"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server(own_kafka: EmbeddedKafka) -> str:
    create_topics(admin_client(own_kafka.bootstrap_server))
    commit_plainly(own_kafka.bootstrap_server, {"first": [TopicPartition("orders", 0, 1)]})
    return own_kafka.bootstrap_server


@pytest.fixture
def runner(spark: SparkSession, server: str, tmp_path: Path) -> JobRunner:
    """Jobs in this process, on the same tables and checkpoints in `tmp_path` as the job processes."""
    return JobRunner(spark, server, tmp_path)


def rows_of(folder: Path, table: str, *columns: str) -> list[tuple[object, ...]]:
    if not DeltaTable.is_deltatable(str(folder / "tables" / table)):
        return []
    found = Lookup(PathStore(str(folder / "tables"))).rows(table, columns)
    return sorted((tuple(row.values()) for row in found), key=repr)


def commits_in_topic(server: str) -> list[tuple[int, int]]:
    """Return (partition, offset) of every offset commit that a read_committed consumer sees, by a separate parser."""
    consumer = Consumer(
        {
            "bootstrap.servers": server,
            "group.id": "independent-list",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        },
        logger=QUIET,
    )
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(50)])
    found, at_end = [], 0
    while at_end < 50:
        message = consumer.poll(10)
        assert message is not None
        if message.error():
            at_end += 1
        elif is_commit_key(message.key()):
            found.append((message.partition(), message.offset()))
    consumer.close()
    return sorted(found, key=repr)


def is_commit_key(key: bytes | None) -> bool:
    """Return whether the key has version 1 and the length that its two strings and one number need (reference 1.1)."""
    if not key or not key.startswith(b"\x00\x01"):
        return False
    try:
        (group,) = struct.unpack_from(">h", key, 2)
        (topic,) = struct.unpack_from(">h", key, 4 + group)
    except struct.error:
        return False
    return bool(len(key) == 10 + group + topic)


def many_commits(count: int, first: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
    records: list[tuple[int, bytes | None, bytes | None]] = []
    for number in range(first, first + count):
        group = f"many-{number % 200}"
        key = {"type": 1, "data": {"group": group, "topic": "orders", "partition": number % 7}}
        data = {"offset": number, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 1_700_000_000_000 + number}
        records.append((partition_for(group, 50), *encode_record(key, {"version": 3, "data": data})))
    return records


def job(server: str, folder: Path, *more: str) -> list[str]:
    """Return the arguments of a job on the tables and checkpoints of a folder."""
    folder_options = ("--tables", str(folder / "tables"), "--checkpoint", str(folder / "checkpoints"))
    return ["run", "--bootstrap-server", server, *folder_options, *more]


def test_sigterm_during_a_batch_loses_and_doubles_nothing(server: str, runner: JobRunner, tmp_path: Path) -> None:
    with JobProcess(server, tmp_path, "--trigger", "0 seconds") as running:
        running.await_(lambda: rows_of(tmp_path, "offsets_partitions", "load_state") == 50 * [("OWNED",)])
        before = len(rows_of(tmp_path, "offset_commits", "record_offset"))
        produce(server, iter(many_commits(3000)))
        # A batch writes the history first and offsets_partitions last, so now the job is in the middle of a batch.
        running.await_(lambda: len(rows_of(tmp_path, "offset_commits", "record_offset")) > before)
        running.process.send_signal(signal.SIGTERM)
        produce(server, iter(many_commits(3000, first=3000)))
        assert running.ended() == 0, running.said()
        assert "Stopped between two batches" in running.said()
    runner.run_once()
    assert "Continuing from checkpoint" in runner.said.getvalue()
    assert runner.rows("offset_commits", "offsets_partition", "record_offset") == commits_in_topic(server)
    last = {("many-" + str(n % 200), n % 7): n for n in range(6000)}
    found = runner.rows("committed_offsets", "group_id", "partition", "committed_offset")
    assert {(g, p): o for g, p, o in found if str(g).startswith("many-")} == last


def test_a_second_job_is_refused_and_stop_ends_the_first(server: str, tmp_path: Path) -> None:
    with JobProcess(server, tmp_path, "--trigger", "1 second") as first:
        first.await_(lambda: bool(rows_of(tmp_path, "committed_offsets", "group_id")))
        shutil.rmtree(tmp_path / "tables" / "topics")
        second = offsetstream(*job(server, tmp_path))
        assert second.returncode == 1
        assert not (tmp_path / "tables" / "topics").exists(), "only who holds the lease makes tables"
        assert f"process {first.process.pid} on" in second.stderr
        assert "offsetstream stop" in second.stderr
        printed("stop", "--tables", str(tmp_path / "tables"))
        assert first.ended() == 0, first.said()
        assert "Stop requested by" in first.said()
    again = offsetstream("stop", "--tables", str(tmp_path / "tables"))
    assert (again.returncode, "no job writes to" in again.stderr) == (1, True)


@pytest.mark.nightly
def test_a_job_whose_clock_is_behind_keeps_its_lease_until_forced(server: str, tmp_path: Path) -> None:
    hours_behind = {"host": "'elsewhere'", "heartbeat_at": "now() - interval '3 hours'"}
    with JobProcess(server, tmp_path, "--trigger", "1 second") as first:
        first.await_(lambda: bool(rows_of(tmp_path, "committed_offsets", "group_id")))
        DeltaTable(str(tmp_path / "tables" / "job_lease")).update(updates=hours_behind)
        second = offsetstream(*job(server, tmp_path, "--once"))
        assert (second.returncode, "on elsewhere) writes to" in second.stderr) == (1, True), second.stderr
        assert "--force" in " ".join(second.stderr.split())
        forced = offsetstream(*job(server, tmp_path, "--once", "--force"))
        assert forced.returncode == 0, forced.stderr
        assert first.ended() == 1
        assert "another job has taken over the lease" in first.said()


def test_the_job_runs_by_spark_submit(server: str, tmp_path: Path) -> None:
    submit = ["spark-submit", "--master", "local[2]"]
    jars = ["--jars", ",".join(str(jar) for jar in resolve(connectors()))]
    folder_options = ["--tables", str(tmp_path / "tables"), "--checkpoint", str(tmp_path / "checkpoints")]
    entry = str(ROOT / "streaming_jobs" / "materialize_offsets.py")
    command = [*submit, *jars, entry, "--bootstrap-server", server, *folder_options, "--trigger", "1 second"]
    path = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with RunningProcess(command, tmp_path / "said.txt", path) as running:
        running.await_(lambda: ("first", 1) in rows_of(tmp_path, "committed_offsets", "group_id", "committed_offset"))
        printed("stop", "--tables", str(tmp_path / "tables"))
        assert running.ended() == 0, running.said()
        assert "Stopped between two batches" in running.said()  # under spark-submit, on standard output


@pytest.fixture(scope="module")
def second_cluster() -> Iterator[str]:
    """A second cluster, in which no group has committed yet."""
    with EmbeddedKafka() as kafka:
        yield kafka.bootstrap_server


def test_the_job_waits_for_a_missing_offsets_topic(second_cluster: str, tmp_path: Path) -> None:
    once = offsetstream(*job(second_cluster, tmp_path, "--once"))
    assert once.returncode == 3
    assert f"topic {TOPIC} does not exist" in once.stderr
    with JobProcess(second_cluster, tmp_path) as waiting:
        waiting.await_(lambda: "no group has committed yet" in waiting.said())
        waiting.process.send_signal(signal.SIGTERM)
        assert waiting.ended() == 0, waiting.said()


def test_tables_of_another_cluster_are_refused(second_cluster: str, runner: JobRunner, tmp_path: Path) -> None:
    runner.run_once()
    create_topics(admin_client(second_cluster))
    commit_plainly(second_cluster, {"elsewhere": [TopicPartition("orders", 0, 1)]})
    refused = offsetstream(*job(second_cluster, tmp_path))
    assert refused.returncode == 1
    assert "belongs to the cluster" in refused.stderr
    assert "--tables" in refused.stderr
