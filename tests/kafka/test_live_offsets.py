"""Offsets are committed to real coordinators and fetched from them. Errors have Kafka's names."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from offsetstream import CommittedOffset, auto_committing_consumer, commit_offsets, fetch_offsets
from offsetstream.cluster.connection import QUIET, kafka_name
from offsetstream.cluster.coordinators import CoordinatorLookup
from offsetstream.cluster.java_client import LIMITED_RETRIES, java_admin
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.errors import UnreachableError, UsageError
from offsetstream.verify.sources import KafkaAdmin, kafka_admin
from testkit.processes import Done, offsetstream
from testkit.waiting import SECONDS, await_
from tests.kafka.jobs import JobRunner

pytestmark = pytest.mark.long

ORDERS = [("orders", number) for number in range(3)]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with EmbeddedKafka() as kafka:
        create_orders(kafka)
        yield kafka.bootstrap_server


@pytest.fixture(scope="module")
def admin(server: str) -> Iterator[KafkaAdmin]:
    with kafka_admin(server, {}) as found:
        yield found


def create_orders(kafka: EmbeddedKafka, replicas: int = 1) -> None:
    admin = admin_client(kafka.bootstrap_server)  # a variable keeps it alive until its answer arrives
    admin.create_topics([NewTopic("orders", 3, replicas)])["orders"].result(SECONDS)


def produce(server: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": server}, logger=QUIET)
    for number in range(records):
        producer.produce("orders", str(number), partition=0)
    assert producer.flush(SECONDS) == 0


@contextmanager
def open_transaction(server: str, group: str, offset: int) -> Iterator[None]:
    """Run a transaction that would commit an offset of orders-0; abort it at the end."""
    producer = Producer({"bootstrap.servers": server, "transactional.id": f"{group}-writer"}, logger=QUIET)
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    metadata = Consumer({"bootstrap.servers": server, "group.id": group}, logger=QUIET).consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition(*ORDERS[0], offset)], metadata)
    yield
    producer.abort_transaction(30)


def test_the_first_commit_of_a_cluster_waits_for_the_coordinator() -> None:
    """The coordinator exists only after the first request for it, and then has to load."""
    with EmbeddedKafka() as kafka:
        create_orders(kafka)
        assert commit_offsets(kafka.bootstrap_server, "first", {ORDERS[0]: 1}) == {ORDERS[0]: None}
        assert fetch_offsets(kafka.bootstrap_server, "first") == {ORDERS[0]: CommittedOffset(1)}


def test_committed_offsets_equal_kafkas_admin(server: str, admin: KafkaAdmin) -> None:
    expected = {
        ORDERS[0]: CommittedOffset(5),
        ORDERS[1]: CommittedOffset(7, 0, "von früher"),
        ORDERS[2]: CommittedOffset(0),
    }
    assert commit_offsets(server, "billing", expected) == dict.fromkeys(ORDERS)
    assert fetch_offsets(server, "billing") == expected
    by_partition = {(row["topic"], row["partition"]): row for row in admin.committed_offsets(["billing"])}
    assert {
        place: CommittedOffset(row["committed_offset"], row["leader_epoch"], row["metadata"])
        for place, row in by_partition.items()
    } == expected
    assert commit_offsets(server, "copy", fetch_offsets(server, "billing")) == dict.fromkeys(ORDERS)
    assert fetch_offsets(server, "copy") == expected


def test_offsets_that_were_never_committed_are_unknown(server: str) -> None:
    assert fetch_offsets(server, "nobody") == {}
    assert fetch_offsets(server, "nobody", [ORDERS[0], ("nowhere", 3)]) == {
        ORDERS[0]: CommittedOffset(None),
        ("nowhere", 3): CommittedOffset(None),
    }
    assert fetch_offsets(server, "nobody", []) == {}
    assert commit_offsets(server, "nobody", {}) == {}
    assert fetch_offsets(server, "nobody") == {}


def test_each_partition_has_its_error(server: str) -> None:
    expected: dict[tuple[str, int], int | CommittedOffset] = {
        ORDERS[0]: 11,
        ("orders", 3): 12,
        ("nowhere", 0): 13,
        ORDERS[1]: CommittedOffset(14, metadata="x" * 4097),
        ORDERS[2]: CommittedOffset(15, metadata="x" * 4096),
    }
    assert commit_offsets(server, "partly", expected) == {
        ORDERS[0]: None,
        ("orders", 3): "UNKNOWN_TOPIC_OR_PARTITION",
        ("nowhere", 0): "UNKNOWN_TOPIC_OR_PARTITION",
        ORDERS[1]: "OFFSET_METADATA_TOO_LARGE",
        ORDERS[2]: None,
    }
    assert {place: each.offset for place, each in fetch_offsets(server, "partly").items()} == {
        ORDERS[0]: 11,
        ORDERS[2]: 15,
    }


def test_a_group_with_members_refuses_commits_of_others(server: str) -> None:
    produce(server, 10)
    with auto_committing_consumer(server, "live", ["orders"]) as consumer:
        read = 0
        while read < 10:
            message = consumer.poll(SECONDS)
            assert message is not None, read
            assert message.error() is None
            read += 1
        assert commit_offsets(server, "live", {ORDERS[0]: 3}) == {ORDERS[0]: "UNKNOWN_MEMBER_ID"}
    found = fetch_offsets(server, "live", [ORDERS[0]])[ORDERS[0]]
    assert found.offset is not None
    assert found.offset >= 10  # it committed its position when it closed


def test_an_open_transaction_makes_an_offset_unstable(server: str) -> None:
    commit_offsets(server, "booking", {ORDERS[0]: 1, ORDERS[1]: 2})
    with open_transaction(server, "booking", 50):
        stable = fetch_offsets(server, "booking", require_stable=True)
        assert stable == {
            ORDERS[0]: CommittedOffset(None, error="UNSTABLE_OFFSET_COMMIT"),
            ORDERS[1]: CommittedOffset(2),
        }
        assert fetch_offsets(server, "booking")[ORDERS[0]] == CommittedOffset(1)
    assert fetch_offsets(server, "booking", require_stable=True)[ORDERS[0]] == CommittedOffset(1)


@pytest.mark.parametrize("group", ["", "a\0b", "\udcff"])
def test_an_ambiguous_group_id_is_refused(group: str) -> None:
    with pytest.raises(UsageError, match=r"the group id .* (is not valid UTF-8|librdkafka would cut it)"):
        fetch_offsets("localhost:1", group)
    with pytest.raises(UsageError, match="the group id"):
        commit_offsets("localhost:1", group, {ORDERS[0]: 1})


@pytest.mark.parametrize(
    ("place", "offset", "message"),
    [
        (ORDERS[0], -1, "cannot commit -1 for orders-0"),
        (ORDERS[0], CommittedOffset(None), "cannot commit None"),
        (ORDERS[0], CommittedOffset(1, metadata="\udcff"), "the metadata of orders-0 .* is not valid UTF-8"),
        (("orders", -1), 1, "topic orders cannot have a partition -1"),
        (("", 0), 1, "the topic ''"),
    ],
)
def test_invalid_commits_are_refused(place: tuple[str, int], offset: int | CommittedOffset, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        commit_offsets("localhost:1", "billing", {place: offset})


def test_errors_have_kafkas_names(admin: KafkaAdmin) -> None:
    errors = admin.jvm.org.apache.kafka.common.protocol.Errors.values()
    # librdkafka has no names for errors that it does not know; coordinators do not return those.
    known = {each.code(): each.name() for each in errors if not kafka_name(KafkaError(each.code())).startswith("ERR_")}
    assert {code: kafka_name(KafkaError(code)) for code in known} == known
    assert len(known) > 120


def test_a_killed_coordinator_is_replaced() -> None:
    with EmbeddedKafka(brokers=3) as kafka:
        server = kafka.bootstrap_server
        create_orders(kafka, 3)
        assert commit_offsets(server, "moving", {ORDERS[0]: 1}) == {ORDERS[0]: None}
        first = CoordinatorLookup(server).coordinators(["moving"])["moving"].broker_id
        kafka.stop_broker(first, kill=True)
        # A new coordinator answers up to its high watermark, which is behind until the other followers fetch from it.
        await_(lambda: fetch_offsets(server, "moving", timeout=SECONDS) == {ORDERS[0]: CommittedOffset(1)})
        assert commit_offsets(server, "moving", {ORDERS[0]: 2}, timeout=SECONDS) == {ORDERS[0]: None}
        assert CoordinatorLookup(server).coordinators(["moving"])["moving"].broker_id != first
        kafka.start_broker(first)
        assert fetch_offsets(server, "moving", timeout=SECONDS) == {ORDERS[0]: CommittedOffset(2)}


@pytest.mark.nightly
def test_a_missing_coordinator_is_an_error_with_kafkas_name() -> None:
    with EmbeddedKafka(brokers=3, properties={"offsets.topic.replication.factor": "1"}) as kafka:
        server = kafka.bootstrap_server
        create_orders(kafka, 3)
        assert commit_offsets(server, "stranded", {ORDERS[0]: 1}) == {ORDERS[0]: None}
        coordinator_id = CoordinatorLookup(server).coordinators(["stranded"])["stranded"].broker_id
        kafka.stop_broker(coordinator_id)
        by_partition = "COORDINATOR_NOT_AVAILABLE: the offsets partition .* of group 'stranded' has no leader"
        with pytest.raises(UnreachableError, match=by_partition):
            fetch_offsets(server, "stranded", timeout=8)
        with pytest.raises(UnreachableError, match=by_partition):
            commit_offsets(server, "stranded", {ORDERS[0]: 2}, timeout=8)
        with java_admin(server, LIMITED_RETRIES) as admin:  # without limits it sends 10,000 requests a second
            with pytest.raises(Py4JJavaError, match="Exceeded maxRetries"):
                admin.fetch("stranded", None, 5, require_stable=False)
            metrics = admin.client.metrics()
            requests = [each.metricValue() for name, each in metrics.items() if name.name() == "request-total"]
            assert 0 < sum(requests) < 200
        kafka.start_broker(coordinator_id)
        assert fetch_offsets(server, "stranded", timeout=SECONDS) == {ORDERS[0]: CommittedOffset(1)}


_QUERY_PROGRAM = """
import sys
from offsetstream.cluster import client
from offsetstream.cluster.coordinators import CoordinatorLookup

client._COORDINATOR_TIMEOUT = 3.0
cluster = CoordinatorLookup(sys.argv[1])
for _ in sys.stdin:
    print(sorted(cluster.hidden_groups(["stranded"])), flush=True)
"""


def test_a_coordinator_that_returns_after_a_timeout_does_not_crash_the_process() -> None:
    """Regression: librdkafka aborted a job whose brokers were killed, because it freed a request twice."""
    with EmbeddedKafka(brokers=3) as kafka:
        server = kafka.bootstrap_server
        create_orders(kafka, 3)
        assert commit_offsets(server, "stranded", {ORDERS[0]: 1}) == {ORDERS[0]: None}
        coordinator_id = CoordinatorLookup(server).coordinators(["stranded"])["stranded"].broker_id
        other_brokers = [broker for broker in (1, 2, 3) if broker != coordinator_id]
        command = [sys.executable, "-c", _QUERY_PROGRAM, server]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            questions, answers = process.stdin, process.stdout
            assert questions
            assert answers

            def query() -> str:
                print("ask", file=questions, flush=True)
                return answers.readline()

            assert query() == "[]\n"
            for broker in (coordinator_id, other_brokers[0]):  # without a majority there is no next coordinator
                kafka.stop_broker(broker, kill=True)
            assert query() == "[]\n"
            for broker in (coordinator_id, other_brokers[0]):
                kafka.start_broker(broker)
            assert fetch_offsets(server, "stranded", timeout=SECONDS) == {ORDERS[0]: CommittedOffset(1)}
            assert query() == "[]\n"
            questions.close()
            assert process.wait() == 0


def list_live(server: str, tables: str, *options: str) -> Done:
    return offsetstream("offsets", "list", "--live", "--bootstrap-server", server, "--tables", tables, *options)


def test_offsets_list_live_compares_tables_with_coordinators(spark: SparkSession, server: str, tmp_path: Path) -> None:
    commit_offsets(server, "shop", {ORDERS[0]: 5, ORDERS[1]: CommittedOffset(6, metadata="noted")})
    runner = JobRunner(spark, server, tmp_path)
    runner.run_once()
    same = list_live(server, runner.tables.root, "--group", "shop", "--output", "json")
    assert same.returncode == 0, same.stderr
    rows = json.loads(same.stdout)
    names = ("topic", "partition", "committed_offset", "live_offset", "difference", "live_metadata", "error")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("orders", 0, 5, 5, 0, None, None),
        ("orders", 1, 6, 6, 0, "noted", None),
    ]
    commit_offsets(server, "shop", {ORDERS[0]: 9, ORDERS[2]: 1})
    text = list_live(server, runner.tables.root, "--group", "shop")
    assert text.returncode == 1
    assert [line.split()[1:6] for line in text.stdout.splitlines()[1:4]] == [
        ["orders", "0", "5", "9", "4"],
        ["orders", "1", "6", "6", "0"],
        ["orders", "2", "-", "1", "-"],
    ]
    assert text.stdout.splitlines()[-1] == "3 offsets; 2 differ between the coordinator and the tables."
    with open_transaction(server, "shop", 77):
        unstable = list_live(
            server, runner.tables.root, "--group", "shop", "--topic", "orders", "--partition", "0", "--require-stable"
        )
    assert "UNSTABLE_OFFSET_COMMIT" in unstable.stdout
    unknown = list_live(server, runner.tables.root, "--group", "nobody")
    assert (unknown.returncode, unknown.stderr) == (1, "Error: group 'nobody' has no such committed offset\n")
    for options in ((), ("--group", "shop", "--at", "1h")):
        assert list_live(server, runner.tables.root, *options).returncode == 2
