"""Groups are reset to past offsets from the job's history, and every interrupted reset can be undone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession

from offsetstream import CommittedOffset, commit_offsets, fetch_offsets
from offsetstream.cluster.client import Cluster
from offsetstream.cluster.connection import QUIET
from offsetstream.cluster.coordinators import CoordinatorLookup
from offsetstream.cluster.group_admin import group_admin
from offsetstream.cluster.log_ends import Answers, TopicPartitionKey
from offsetstream.cluster.metadata import MetadataCache
from offsetstream.demo.topics import commit_plainly
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.operations.execute import execute
from offsetstream.operations.journal import Journal
from offsetstream.operations.reset import Scope, Target, plan_reset
from offsetstream.tables.path_store import PathStore
from testkit.processes import OFFSETSTREAM, Done, offsetstream, within
from testkit.tables import new_tables
from testkit.waiting import SECONDS, await_
from tests.kafka.jobs import JobRunner

pytestmark = pytest.mark.long

RECORDS, GROUPS = 20, 40


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    """Three brokers; topics and groups survive the loss of one."""
    with EmbeddedKafka(brokers=3) as kafka:
        yield kafka


def make_topic(kafka: EmbeddedKafka, topic: str, partitions: int = 1) -> None:
    admin = admin_client(kafka.bootstrap_server)
    admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result(SECONDS)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_server}, logger=QUIET)
    for number in range(RECORDS * partitions):
        producer.produce(topic, str(number // partitions), partition=number % partitions)
    assert producer.flush(SECONDS) == 0


def read(server: str, group: str, topic: str, records: int) -> list[int]:
    """Read and commit the group's next records; return their values."""
    config = {"bootstrap.servers": server, "group.id": group, "auto.offset.reset": "earliest"}
    consumer, lookup = Consumer(config | {"enable.auto.commit": False}, logger=QUIET), list[int]()
    consumer.subscribe([topic])
    while len(lookup) < records:
        message = consumer.poll(SECONDS)
        assert message is not None, lookup
        assert message.error() is None, message.error()
        lookup.append(int(message.value()))
    consumer.commit(offsets=[TopicPartition(topic, 0, lookup[-1] + 1)], asynchronous=False)
    consumer.close()
    return lookup


def committed_offset(server: str, group: str, topic: str) -> int | None:
    return fetch_offsets(server, group, timeout=SECONDS)[topic, 0].offset


def test_a_group_reset_to_an_instant_reads_again_what_it_read_since(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    server, runner = kafka.bootstrap_server, JobRunner(spark, kafka.bootstrap_server, tmp_path)
    make_topic(kafka, "orders")
    commit_offsets(server, "billing", {("orders", 0): 0})
    runner.run_once()  # the history starts now
    assert read(server, "billing", "orders", 5) == list(range(5))
    time.sleep(1.1)  # brokers set the record timestamps; the next commit must not get the same one
    past_time = datetime.now(UTC)
    time.sleep(0.1)
    assert read(server, "billing", "orders", 10) == list(range(5, 15))
    runner.run_once()
    options = ("--bootstrap-server", server, "--tables", runner.tables.root)
    back = ("offsets", "reset", "--group", "billing", "--at", past_time.isoformat(), *options)
    done = within(*back, "--execute")
    assert (done.returncode, committed_offset(server, "billing", "orders")) == (0, 5), done.stderr
    assert (
        within("offsets", "undo", *options, "--execute").returncode,
        committed_offset(server, "billing", "orders"),
    ) == (0, 15)
    shown = within(*back)
    assert "1 offset of 1 group: 0 messages skipped, 10 read again." in shown.stdout
    assert within(*back, "--execute").returncode == 0
    assert read(server, "billing", "orders", 15) == list(range(5, 20))
    early = within("offsets", "reset", "--group", "billing", "--at", "2020-01-01", *options)
    assert (early.returncode, "unknown" in early.stderr or "had no committed offset" in early.stderr) == (1, True)
    late = within("offsets", "reset", "--group", "billing", "--at", datetime.now(UTC).isoformat(), *options)
    assert (late.returncode, "is read up to" in late.stderr) == (1, True), late.stderr
    admin = admin_client(server)
    admin.delete_topics(["orders"])["orders"].result(SECONDS)
    await_(lambda: "orders" not in admin.list_topics(timeout=SECONDS).topics)
    make_topic(kafka, "orders")
    runner.run_once()
    again = within(*back, "--despite", "no-such-group", "--execute")
    assert (again.returncode, "the topic was recreated since" in again.stderr) == (1, True), again.stderr
    undone = within("offsets", "undo", *options, "--despite", "recreated-topic", "--execute")
    assert (undone.returncode, committed_offset(server, "billing", "orders")) == (0, 15), undone.stderr


@pytest.fixture
def tables(kafka: EmbeddedKafka, tmp_path: Path) -> Path:
    new_tables(tmp_path / "tables", cluster_id=Cluster(kafka.bootstrap_server).cluster_id())
    return tmp_path / "tables"


def make_groups(server: str, name: str, topic: str) -> dict[str, int]:
    """Create groups with different committed offsets."""
    offsets = {f"{name}-{number}": number % 7 for number in range(GROUPS)}
    commit_plainly(server, {group: [TopicPartition(topic, 0, offset)] for group, offset in offsets.items()})
    return offsets


def reset_all(server: str, tables: Path, groups: dict[str, int], topic: str) -> list[str]:
    named = [each for group in groups for each in ("--group", group)]
    options = ["--bootstrap-server", server, "--tables", str(tables), "--timeout", "60"]
    return [*OFFSETSTREAM, "offsets", "reset", *named, "--topic", topic, "--to-latest", *options, "--execute"]


def undo(server: str, tables: Path) -> Done:
    return offsetstream(
        "offsets", "undo", "--bootstrap-server", server, "--tables", str(tables), "--timeout", "60", "--execute"
    )


def committed_offsets(server: str, groups: dict[str, int], topic: str) -> dict[str, int | None]:
    return {group: committed_offset(server, group, topic) for group in groups}


@pytest.mark.parametrize(
    "seconds", [0.0, pytest.param(0.1, marks=pytest.mark.nightly), pytest.param(0.4, marks=pytest.mark.nightly)]
)
def test_a_killed_reset_can_be_undone(kafka: EmbeddedKafka, tables: Path, seconds: float) -> None:
    server, topic = kafka.bootstrap_server, f"killed-{seconds}"
    make_topic(kafka, topic)
    groups = make_groups(server, topic, topic)
    process = subprocess.Popen(reset_all(server, tables, groups, topic), stdout=subprocess.DEVNULL)
    await_(lambda: any((tables / "snapshots").glob("*.json")), pause=0.005)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.wait(SECONDS)
    taken_back = undo(server, tables)
    assert taken_back.returncode == 0, taken_back.stderr
    assert committed_offsets(server, dict(list(groups.items())[:8]), topic) == dict(list(groups.items())[:8])
    again = undo(server, tables)
    assert again.stdout.splitlines()[-1] == "There is nothing to do."
    query = "SELECT kind, status FROM operations ORDER BY happened_at"
    shown = within("sql", query, "--output", "json", "--tables", str(tables))
    assert seconds or {"kind": "reset", "status": "done"} not in json.loads(shown.stdout)


@pytest.mark.nightly
def test_a_reset_continues_after_the_loss_of_a_coordinator(kafka: EmbeddedKafka, tables: Path) -> None:
    server, topic = kafka.bootstrap_server, "lost"
    make_topic(kafka, topic)
    groups = make_groups(server, topic, topic)
    broker = CoordinatorLookup(server).coordinators([f"{topic}-39"])[f"{topic}-39"].broker_id
    command = reset_all(server, tables, groups, topic)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    await_(lambda: any((tables / "snapshots").glob("*.json")), pause=0.005)
    kafka.stop_broker(broker, kill=True)
    out, err = process.communicate(timeout=SECONDS)
    try:
        assert process.returncode in {0, 1, 3}, err
        if process.returncode == 0:
            sample = list(groups)[::8]
            assert committed_offsets(server, dict.fromkeys(sample, 0), topic) == dict.fromkeys(sample, RECORDS)
        assert "Traceback" not in out + err
    finally:
        kafka.start_broker(broker)
    taken_back = undo(server, tables)
    assert taken_back.returncode == 0, taken_back.stderr
    sample = list(groups)[::8]
    assert committed_offsets(server, dict.fromkeys(sample, 0), topic) == {group: groups[group] for group in sample}


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)])
def test_a_stopped_reset_reports_what_was_done(kafka: EmbeddedKafka, tables: Path, number: signal.Signals) -> None:
    server, topic = kafka.bootstrap_server, f"stopped-{number.name}"
    make_topic(kafka, topic)
    groups = make_groups(server, topic, topic)
    command = [*reset_all(server, tables, groups, topic), "--output", "json"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    await_(lambda: any((tables / "snapshots").glob("*.json")), pause=0.005)
    os.killpg(process.pid, number)  # like Ctrl-C in a terminal: the whole process group gets the signal
    out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, "Traceback" in err) == (1, False), err
    results = [row["result"] for row in json.loads(out)]
    done = results.count("done")
    assert (done < GROUPS, results.count("not done")) == (True, GROUPS - done)
    assert f"Error: stopped after {done} of 40 groups: the others are unchanged" in err
    assert "'offsetstream offsets undo' with this file undoes the change" in err
    taken_back = undo(server, tables)
    assert taken_back.returncode == 0, taken_back.stderr
    assert committed_offsets(server, dict(list(groups.items())[:4]), topic) == dict(list(groups.items())[:4])
    shown = within(
        "sql", "SELECT status FROM operations ORDER BY happened_at", "--output", "json", "--tables", str(tables)
    )
    assert [row["status"] for row in json.loads(shown.stdout)][:2] == ["started", "ended"]


class LeaderIsLost(MetadataCache):
    """Stops the leader of a partition when it gets a certain query."""

    def __init__(self, kafka: EmbeddedKafka, query: str) -> None:
        super().__init__(kafka.bootstrap_server)
        self._kafka, self._query, self.lost = kafka, query, 0

    def _lose(self, query: str, partition: TopicPartitionKey) -> None:
        if query == self._query and not self.lost:
            leader = self.partition(*partition)
            assert leader is not None
            assert leader.leader is not None
            self.lost = leader.leader
            self._kafka.stop_broker(self.lost, kill=True)

    def ends(
        self, requested: Mapping[str, Collection[int] | None], known_starts: Mapping[TopicPartitionKey, str | None]
    ) -> Answers:
        self._lose("ends", TopicPartitionKey(next(iter(requested)), 0))
        return super().ends(requested, known_starts)

    def first_since_each(self, since_ms: Mapping[TopicPartitionKey, int]) -> dict[TopicPartitionKey, int | str | None]:
        self._lose("times", next(iter(since_ms)))
        return super().first_since_each(since_ms)


@pytest.mark.parametrize("query", [pytest.param("ends", marks=pytest.mark.nightly), "times"])
def test_planning_continues_after_the_loss_of_a_leader(kafka: EmbeddedKafka, query: str) -> None:
    server, topic, group = kafka.bootstrap_server, f"led-{query}", f"following-{query}"
    make_topic(kafka, topic, 3)
    commit_offsets(server, group, {(topic, number): 1 for number in range(3)})
    cluster = LeaderIsLost(kafka, query)
    try:
        with group_admin(cluster, {}, 60, ("READ",)) as admin:
            target = Target("time", value=0)
            plan = plan_reset(cluster, admin, [group], Scope({topic: None}), target, 60)
    finally:
        kafka.start_broker(cluster.lost)
    assert plan.objections == []
    assert {each.place: each.new for each in plan.changes} == {
        (topic, number): CommittedOffset(0) for number in range(3)
    }


@pytest.mark.nightly
def test_a_missing_coordinator_ends_the_reset_which_reports_what_was_done(tmp_path: Path) -> None:
    with EmbeddedKafka(brokers=3, properties={"offsets.topic.replication.factor": "1"}) as kafka:
        server, topic = kafka.bootstrap_server, "stranded"
        make_topic(kafka, topic)
        groups = [f"group-{number}" for number in range(6)]
        commit_plainly(server, {group: [TopicPartition(topic, 0, 1)] for group in groups})
        lookup = CoordinatorLookup(server).coordinators(groups)
        lost = lookup[groups[-1]].broker_id
        unreached = [group for group in groups if lookup[group].broker_id == lost]
        cluster, store = MetadataCache(server), PathStore(str(tmp_path / "tables"))
        with group_admin(cluster, {}, 8, ("READ",)) as admin:
            plan = plan_reset(cluster, admin, groups, Scope({topic: None}), Target("latest"), 30)
            kafka.stop_broker(lost)
            journal = Journal(store, cluster.cluster_id(), "0123456789ab", "a test")
            with journal.holding(plan):
                result = execute(admin, plan, tmp_path / "snapshots", journal, lambda _: None)
        assert result.ended_by is not None
        assert (result.status(plan), result.ended_by.exit_code, result.journal_error) == ("ended", 3, None)
        done = {each.group_id for each in plan.changes if result.error_of(each) is None}
        assert done == {group for group in groups if group < unreached[0]}
        query = "SELECT status, result FROM operations ORDER BY happened_at"
        journal_rows = json.loads(within("sql", query, "--output", "json", "--tables", store.root).stdout)
        assert [row["status"] for row in journal_rows] == ["started", "ended"]
        assert json.loads(journal_rows[1]["result"])["ended_by"] == str(result.ended_by)


def test_an_open_transaction_is_an_objection(kafka: EmbeddedKafka, tables: Path) -> None:
    server, topic = kafka.bootstrap_server, "booked"
    make_topic(kafka, topic)
    commit_offsets(server, "booking", {(topic, 0): 1})
    producer = Producer({"bootstrap.servers": server, "transactional.id": "booking-writer"}, logger=QUIET)
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    consumer = Consumer({"bootstrap.servers": server, "group.id": "booking"}, logger=QUIET)
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 7)], consumer.consumer_group_metadata())
    options = ("--bootstrap-server", server, "--tables", str(tables), "--execute")
    refused = within("offsets", "reset", "--group", "booking", "--all-topics", "--to-latest", *options)
    assert (refused.returncode, "an open transaction has a pending offset for it" in refused.stderr) == (1, True)
    new = Consumer({"bootstrap.servers": server, "group.id": "booking-first"}, logger=QUIET)
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 7)], new.consumer_group_metadata())
    commands = [
        ("offsets", "reset", "--group", "booking-first", "--topic", topic, "--to-latest", "--despite", "no-such-group"),
        ("offsets", "delete", "--group", "booking", "--topic", topic),
        ("groups", "delete", "--group", "booking"),
    ]
    for command in commands:
        refused = within(*command, *options)
        assert (refused.returncode, "an open transaction has a pending offset for it" in refused.stderr) == (1, True), (
            command
        )
    new.close()
    producer.abort_transaction(60)
    consumer.close()
    assert committed_offset(server, "booking", topic) == 1


def test_a_silent_cluster_is_named(tables: Path) -> None:
    options = ("--bootstrap-server", "127.0.0.1:1", "--tables", str(tables))
    done = within("offsets", "reset", "--group", "billing", "--all-topics", "--to-latest", *options)
    assert (done.returncode, "127.0.0.1:1" in done.stderr, done.stdout) == (3, True, "")
