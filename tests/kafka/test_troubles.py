"""Designed troubles among healthy groups: at no time does a verdict report more than what the script did."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession

from offsetstream.cli.main import main
from offsetstream.cluster.records import close
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.demo.topics import commit_plainly
from offsetstream.embedded.clients import QUIET, admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.views.reader import ViewReader
from testkit.tables import append_rows
from testkit.waiting import SECONDS, await_, repeated
from tests.kafka.jobs import JobRunner

pytestmark = pytest.mark.long

PARTITIONS, BLOCKED_PARTITION = 50, 20  # which no other group uses
TOPICS = ("busy", "ledger", "marked", "inventory", "kept", "left", "small", "renewed")
NAMES = (f"behind-{number}" for number in range(2000))
BLOCKED = [name for name in NAMES if partition_for(name, PARTITIONS) == BLOCKED_PARTITION][:10]
WAITING = [f"reads-committed-{number}" for number in range(6)]
HEALTHY = [f"well-{number}" for number in range(10)]
RENEWED = [f"renewed-{number}" for number in range(4)]
GUEST_SECONDS = 4  # how long the guest stays
CAUSES = {"the open transaction offsets-writer-3": 10, "the open transaction ledger-writer-7": 6}
# The verdict that `groups status` must finally give each group.
EXPECTED = {
    **dict.fromkeys(BLOCKED, "blocked"),
    **dict.fromkeys(WAITING, "waiting"),
    **dict.fromkeys((*HEALTHY, *RENEWED), "ok"),
    "flapping": "unstable",
    "of-inventory": "unknown",
    "left-alone": "dead",
    "beyond": "beyond the end",
    "marker": "ok",
    "moved-on": "abandoned",
}
# Verdicts allowed before that: soon after a trouble starts, nothing is known yet, or nothing is wrong yet.
ON_THE_WAY = {"ok", "unknown", "catching up"}


class Crowd:
    """Consumers that read and commit, all in one thread."""

    def __init__(self, bootstrap_server: str) -> None:
        self._bootstrap_server = bootstrap_server
        self._members: list[Consumer] = []
        self._lock, self._ended = threading.Lock(), threading.Event()

    def join(self, group: str, *topics: str, **properties: Any) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap_server,
                "group.id": group,
                "client.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **properties,
            },
            logger=QUIET,
        )
        consumer.subscribe(list(topics))
        with self._lock:
            self._members.append(consumer)
        return consumer

    def leave(self, consumer: Consumer) -> None:
        with self._lock:
            self._members.remove(consumer)
        close(consumer)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        thread = threading.Thread(target=self._work)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join(SECONDS)
            for each in self._members:
                close(each)

    def _work(self) -> None:
        while not self._ended.wait(0.2):
            with self._lock:
                for each in self._members:
                    if each.consume(100, 0.001):
                        each.commit(asynchronous=True)


def produce(kafka: EmbeddedKafka, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_server})
    for _ in range(count):
        producer.produce(topic, b"value")
    producer.flush(SECONDS)


@contextmanager
def transaction(kafka: EmbeddedKafka, transactional_id: str) -> Iterator[Producer]:
    """Keep a transaction open while the context lasts."""
    config = {"bootstrap.servers": kafka.bootstrap_server, "transactional.id": transactional_id}
    producer = Producer({**config, "transaction.timeout.ms": 900_000}, logger=QUIET)
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    yield producer
    producer.commit_transaction(SECONDS)


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as kafka:
        admin = admin_client(kafka.bootstrap_server)
        for future in admin.create_topics([NewTopic(name, 1) for name in TOPICS]).values():
            future.result(SECONDS)
        yield kafka


def statuses(runner: JobRunner) -> dict[str, dict[str, Any]]:
    if runner.tables.opened("topic_partitions") is None:
        return {}
    return {row["group_id"]: row for row in ViewReader(runner.tables).rows("group_status")}


def start_troubles(kafka: EmbeddedKafka, crowd: Crowd, runner: JobRunner, stack: ExitStack) -> None:
    """Start all troubles that need no time to develop."""
    bootstrap_server, admin = kafka.bootstrap_server, admin_client(kafka.bootstrap_server)
    for group in (*BLOCKED, *HEALTHY):
        crowd.join(group, "busy")
    for group in WAITING:
        crowd.join(group, "ledger", **{"isolation.level": "read_committed"})
    for topic in ("busy", "ledger", "inventory", "small", "left", "kept"):
        produce(kafka, topic, 10)
    with transaction(kafka, "marks") as marks:
        marks.produce("marked", b"value")
    mover = crowd.join("moved-on", "left", "kept")
    commit_plainly(
        bootstrap_server,
        {
            "of-inventory": [TopicPartition("inventory", 0, 10)],
            "beyond": [TopicPartition("small", 0, 500)],
            "marker": [TopicPartition("marked", 0, 1)],  # the group has read the record; the marker is at 1
            **{group: [TopicPartition("renewed", 0, 0)] for group in RENEWED},
        },
    )
    known = {*EXPECTED} - {"flapping"}
    runner.await_(lambda: known <= statuses(runner).keys())
    mover.subscribe(["kept"])
    produce(kafka, "left", 10)
    admin.delete_topics(["inventory", "renewed"])["renewed"].result(SECONDS)
    writer = stack.enter_context(transaction(kafka, "offsets-writer-3"))
    nobody = Consumer({"bootstrap.servers": bootstrap_server, "group.id": BLOCKED[0]}, logger=QUIET)
    writer.send_offsets_to_transaction([TopicPartition("kept", 0, 1)], nobody.consumer_group_metadata(), SECONDS)
    close(nobody)
    ledger = stack.enter_context(transaction(kafka, "ledger-writer-7"))
    ledger.produce("ledger", b"value")
    ledger.flush(SECONDS)
    await_(lambda: "renewed" not in admin.list_topics(timeout=SECONDS).topics)
    admin.create_topics([NewTopic("renewed", 1)])["renewed"].result(SECONDS)
    commit_plainly(bootstrap_server, {group: [TopicPartition("renewed", 0, 0)] for group in RENEWED})


def wrong_verdicts(rows: dict[str, dict[str, Any]]) -> list[str]:
    """Return the groups whose verdict is not among the allowed ones."""
    return [
        f"{group} is {row['verdict']}, not {EXPECTED[group]}: {row['verdict_reason']}"
        for group, row in rows.items()
        if row["verdict"] not in {EXPECTED.get(group), *ON_THE_WAY}
    ]


def test_each_trouble_is_reported_and_no_healthy_group_is(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> None:
    runner = JobRunner(spark, kafka.bootstrap_server, tmp_path_factory.mktemp("job"))
    commit_plainly(kafka.bootstrap_server, {"left-alone": [TopicPartition("small", 0, 3)]})
    runner.run_once()
    append_rows(Path(runner.tables.root), "thresholds", [{"group_id": "left-alone", "window_seconds": 60}])
    crowd, wrong_at_each_query = Crowd(kafka.bootstrap_server), []
    with crowd.at_work(), runner.running(sample_interval=2), ExitStack() as stack:
        stack.enter_context(repeated(lambda: produce(kafka, "busy", 1), 1))
        stack.enter_context(repeated(lambda: produce(kafka, "ledger", 1), 1))
        start_troubles(kafka, crowd, runner, stack)
        crowd.join("flapping", "kept", **{"client.id": "steady"})
        deadline = time.monotonic() + 2 * SECONDS
        while (by_group := statuses(runner)) and {group: row["verdict"] for group, row in by_group.items()} != EXPECTED:
            wrong_at_each_query.append(wrong_verdicts(by_group))
            assert time.monotonic() < deadline, [
                row for group, row in by_group.items() if row["verdict"] != EXPECTED[group]
            ]
            guest = crowd.join("flapping", "kept", **{"client.id": "guest"})
            time.sleep(GUEST_SECONDS)
            crowd.leave(guest)
        shown = CliRunner().invoke(main, ["groups", "status", "--tables", runner.tables.root], catch_exceptions=False)
    assert [each for each in wrong_at_each_query if each] == []
    causes = Counter(row["cause"] for row in by_group.values() if row["cause"])
    assert causes.items() >= CAUSES.items()
    for cause, number in CAUSES.items():
        name = cause.removeprefix("the open transaction ")
        ends_it = f"'kafka-transactions.sh forceTerminateTransaction --transactionalId {name}' ends it"
        assert f"{number} groups: {cause}; {ends_it}" in shown.stderr.splitlines()
    assert "deleted with the topic inventory" in by_group["of-inventory"]["verdict_reason"]
    assert shown.exit_code == 4
