"""`verify` of wrong tables: it explains no difference without a reason in the log or a running job."""

import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from offsetstream.cluster.records import close
from offsetstream.demo.topics import commit_plainly, create_topics
from offsetstream.embedded.clients import QUIET, admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.tables.ledger import count_uncounted, delete_entries
from offsetstream.tables.names import RECORD_TABLES
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.transaction import BatchId
from testkit.processes import printed, within
from testkit.tables import append_rows, snapshot_at
from testkit.waiting import SECONDS, at_work
from tests.kafka.jobs import JobRunner

pytestmark = pytest.mark.long

GROUPS = [f"group-{number}" for number in range(8)]
WRITER = "writer"


def commit(kafka: EmbeddedKafka, offset: int, groups: list[str] = GROUPS) -> None:
    row_count = [TopicPartition("orders", number, offset) for number in (0, 1)]
    commit_plainly(kafka.bootstrap_server, dict.fromkeys(groups, row_count))


@contextmanager
def transaction(kafka: EmbeddedKafka, offset: int) -> Iterator[None]:
    """Keep a transaction with a commit open while the context lasts."""
    server = {"bootstrap.servers": kafka.bootstrap_server}
    producer = Producer({**server, "transactional.id": WRITER}, logger=QUIET)
    consumer = Consumer({**server, "group.id": WRITER}, logger=QUIET)
    try:
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        offsets = [TopicPartition("orders", 0, offset)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
        yield
        producer.commit_transaction(30)
    finally:
        close(consumer)


@pytest.fixture(scope="module")
def runner(own_kafka: EmbeddedKafka, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> JobRunner:
    create_topics(admin_client(own_kafka.bootstrap_server))
    runner = JobRunner(spark, own_kafka.bootstrap_server, tmp_path_factory.mktemp("job"))
    commit(own_kafka, 1, [*GROUPS, WRITER])
    runner.run_once()
    commit(own_kafka, 2)
    runner.run_once()
    return runner


@pytest.fixture
def verify(own_kafka: EmbeddedKafka, runner: JobRunner, tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Return the command for a copy of current tables in `tmp_path/tables`; it returns exit code and output."""
    runner.run_once()
    shutil.copytree(runner.tables.root, tmp_path / "tables")

    def verify(*options: str) -> tuple[int, str]:
        server = ("--bootstrap-server", own_kafka.bootstrap_server, "--tables", str(tmp_path / "tables"))
        done = within("verify", *server, "--settle", "0", *options)
        return done.returncode, done.stdout + done.stderr

    return verify


def test_doubled_rows_are_differences(verify: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    assert verify() == (0, f"{len(GROUPS) + 1} groups compared: 0 unexplained differences, 0 explained\n")
    doubled = ("groups", "committed_offsets", "group_cells", "offsets_partitions", "offset_commits", "group_records")
    for name in doubled:
        table = DeltaTable(tmp_path / "tables" / name)
        write_deltalake(table, table.to_pyarrow_table(), mode="append")
    code, output = verify()
    assert code == 1
    named = {line.partition(":")[0] for line in output.splitlines() if ": rows is " in line}
    assert named == {*doubled} - {name for name in doubled if not DeltaTable(tmp_path / "tables" / name).count()}
    assert {"groups", "committed_offsets", "offsets_partitions", "offset_commits"} <= named


def test_without_a_job_new_commits_are_unexplained(
    own_kafka: EmbeddedKafka, verify: Callable[..., tuple[int, str]]
) -> None:
    offsets = count(10)

    def work(ended: threading.Event) -> None:
        while not ended.is_set():
            commit(own_kafka, next(offsets))

    with at_work(work):
        code, output = verify("--settle", "3")
    assert (code, " 0 unexplained" in output, "it changed while" in output) == (1, False, False), output
    assert "No job runs on these tables: " in output


def test_a_past_transaction_explains_nothing(
    own_kafka: EmbeddedKafka, runner: JobRunner, verify: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    """The job recorded that its partition was blocked, but the transaction has ended."""
    with transaction(own_kafka, 7):
        runner.run_once()
        shutil.rmtree(tmp_path / "tables")
        shutil.copytree(runner.tables.root, tmp_path / "tables")
        commit(own_kafka, 8, [WRITER])  # the coordinator returns it, but no read_committed reader sees it yet
        code, output = verify()
        assert (code, output.count("(explained: an open transaction blocks")) == (0, 2), output
    code, output = verify()
    assert (code, output.count("committed_offset is"), "explained: " in output.splitlines()[0]) == (1, 2, False), output


def test_lost_changed_and_invented_history_is_found(
    runner: JobRunner, verify: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    code, output = verify("--history")
    assert (code, output.splitlines()[-1].partition(": ")[2]) == (0, ALL_THERE.format(len(records(tmp_path)))), output
    table = DeltaTable(tmp_path / "tables" / "offset_commits")
    (partition, *_), *_ = runner.rows("offset_commits", "offsets_partition", "record_offset")
    table.delete("committed_offset = 1")
    code, output = verify()
    assert code == 1
    assert re.search(
        r"offset_commits: offsets_partition \d+, .* batch_id -?\d+: rows is 0 in the tables, \d+ in the ledger", output
    )

    table.update({"committed_offset": "77"}, predicate="committed_offset = 2 AND group_id = 'group-3'")
    made_up = {"offsets_partition": partition, "record_offset": 0, "log_id": 0, "group_id": "nobody", "key_type": 2}
    append_rows(tmp_path / "tables", "group_records", [made_up | {"key_json": "{}", "is_tombstone": False}])
    code, output = verify("--history")
    assert code == 1
    lines = [line for line in output.splitlines() if line.startswith(("offset_commits: ", "group_records: "))]
    kinds = ("checksum is", "rows is 0", "only in the topic", "only in the tables", "content is")
    assert [any(kind in line for line in lines) for kind in kinds] == [True] * len(kinds), output
    assert ", 0 only" not in output.splitlines()[-1]


def test_only_history_that_retention_can_have_removed_is_explained(
    own_kafka: EmbeddedKafka, runner: JobRunner, verify: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    for offset in (3, 4):
        commit(own_kafka, offset)
        runner.run_once()
    shutil.rmtree(tmp_path / "tables")
    shutil.copytree(runner.tables.root, tmp_path / "tables")
    tables = PathStore(str(tmp_path / "tables"))
    commits = DeltaTable(tables.table("offset_commits"))
    commits.update({"written_day": "DATE '2020-01-01'"}, predicate="committed_offset <= 2")
    delete_entries(tables, RECORD_TABLES)
    count_uncounted(tables, RECORD_TABLES, 0, BatchId(99, -1))
    printed("maintain", "--tables", tables.root, "--keep-history", "1d")
    row_count = 2 * len(GROUPS)
    code, output = verify("--history")
    assert (code, f" {row_count} thinned by retention, 0 only in the topic" in output) == (0, True), output
    commits = DeltaTable(tables.table("offset_commits"))
    commits.delete("committed_offset = 3")
    code, output = verify("--history")
    assert (code, f" {row_count} thinned by retention, {row_count} only in the topic" in output) == (1, True), output


ALL_THERE = (
    "{0:,} in the topic and in the tables, 0 superseded in the topic, 0 thinned by retention, 0 only in the topic, "
    "0 only in the tables, 0 changed"
)


def records(tmp_path: Path) -> list[dict[str, Any]]:
    names = ("offset_commits", "group_records", "undecodable_records")
    return [row for name in names for row in read_rows(snapshot_at(tmp_path / "tables" / name))]
