"""The command shows which open transactions block partitions, as Kafka's own tools do, and how to end them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from offsetstream import commit_offsets
from offsetstream.cluster.rights import OFFSETS_TOPIC, TRANSACTION_STATE
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.embedded.clients import QUIET, admin_client
from offsetstream.embedded.jvm import run_tool
from offsetstream.embedded.kafka import EmbeddedKafka
from testkit.live_logs import await_end
from testkit.processes import Done, within
from testkit.waiting import SECONDS, await_

TOOL, TOPIC, GROUP = "org.apache.kafka.tools.TransactionsCommand", "bookings", "booking"
MINE = (OFFSETS_TOPIC, partition_for(GROUP, 50))
DATA = (TOPIC, 1)
TEN_MINUTES = 600_000


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as kafka:
        admin = admin_client(kafka.bootstrap_server)
        admin.create_topics([NewTopic(TOPIC, 2)])[TOPIC].result(SECONDS)
        assert commit_offsets(kafka.bootstrap_server, GROUP, {DATA: 0}) == {DATA: None}
        yield kafka


@pytest.fixture
def server(kafka: EmbeddedKafka) -> str:
    return kafka.bootstrap_server


@contextmanager
def open_transaction(server: str, transactional_id: str) -> Iterator[Producer]:
    """Keep a transaction with three records and an offset open."""
    config = {"bootstrap.servers": server, "transactional.id": transactional_id, "transaction.timeout.ms": TEN_MINUTES}
    producer = Producer(config, logger=QUIET)
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(TOPIC, b"value", partition=DATA[1])
    metadata = Consumer({"bootstrap.servers": server, "group.id": GROUP}, logger=QUIET).consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition(*DATA, 3)], metadata)
    producer.flush(SECONDS)
    yield producer


def blocked_command(server: str, *options: str) -> Done:
    return within("partitions", "--blocked", "--bootstrap-server", server, *options)


def rows(server: str, *options: str) -> list[dict[str, Any]]:
    done = blocked_command(server, *options, "--output", "json")
    assert done.returncode in {0, 1}, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def table(printed: str) -> list[dict[str, str]]:
    """Parse the output of Kafka's tool: a header line, and a line for each transaction or producer."""
    header, *data_lines = [line.split("\t") for line in printed.splitlines() if line.strip()]
    return [
        dict(zip([name.strip() for name in header], [cell.strip() for cell in line], strict=True))
        for line in data_lines
    ]


def tool_rows(server: str, *arguments: str) -> list[dict[str, str]]:
    return table(run_tool(TOOL, ["--bootstrap-server", server, *arguments]))


def run(command: str) -> None:
    script, *arguments = shlex.split(command)
    assert script == "kafka-transactions.sh"
    run_tool(TOOL, arguments)


def test_without_open_transactions_nothing_is_blocked(server: str) -> None:
    done = blocked_command(server)
    assert (done.returncode, done.stderr) == (0, "")
    assert "0 of 50 partitions blocked by open transactions of 0 producers, as of " in done.stdout


@pytest.mark.long
def test_a_blocking_transaction_its_producer_and_the_command_to_end_it(server: str) -> None:
    with open_transaction(server, "writer of 'bookings'"):
        (mine,) = rows(server)
        (data,) = rows(server, "--group", GROUP)
        assert (mine["topic"], mine["partition"]) == MINE
        assert (data["topic"], data["partition"]) == DATA
        assert [row["blocked_records"] for row in (mine, data)] == [1, 3]
        (producer,) = tool_rows(server, "describe-producers", "--topic", TOPIC, "--partition", "1")
        (about,) = tool_rows(server, "describe", "--transactional-id", "writer of 'bookings'")
        for row in (mine, data):
            assert str(row["producer_id"]) == producer["ProducerId"] == about["ProducerId"]
            assert str(row["producer_epoch"]) == producer["ProducerEpoch"] == about["ProducerEpoch"]
            assert (row["transactional_id"], row["state"]) == ("writer of 'bookings'", about["TransactionState"])
            assert str(row["coordinator_id"]) == about["CoordinatorId"]
            assert row["timeout_ms"] == TEN_MINUTES == int(about["TransactionTimeoutMs"])
            assert row["is_hanging"] is False
            assert 0 <= row["age_ms"] < TEN_MINUTES
        assert str(data["start_offset"]) == producer["CurrentTransactionStartOffset"] == str(data["last_stable_offset"])
        assert data["abort_command"].endswith("abort --topic bookings --partition 1 --start-offset 0")
        text = blocked_command(server, "--topic", TOPIC)
        assert text.returncode == 1
        assert "1 of 2 partitions blocked by open transactions of 1 producer" in text.stdout
        run(data["command"])
        await_end(server, MINE, DATA)
    assert blocked_command(server).returncode == 0


@pytest.mark.long
def test_a_transaction_unknown_to_its_coordinator_is_hanging(kafka: EmbeddedKafka, server: str) -> None:
    with open_transaction(server, "forgotten"):
        forget(server, "forgotten")
        kafka.restart()
        found: list[dict[str, Any]] = []

        def is_reported() -> bool:
            found[:] = rows(server, "--group", GROUP)
            return bool(found) and found[0]["error"] is None and found[0]["is_hanging"] is not None

        await_(is_reported)
        (row,) = found
        assert (row["is_hanging"], row["transactional_id"], row["state"]) == (True, None, None)
        (hanging,) = tool_rows(
            server, "find-hanging", "--topic", TOPIC, "--partition", "1", "--max-transaction-timeout", "0"
        )
        assert str(row["producer_id"]) == hanging["ProducerId"]
        assert row["command"] == row["abort_command"]
        for each in (row, *rows(server)):
            run(each["command"])
        await_end(server, MINE, DATA)


def forget(server: str, transactional_id: str) -> None:
    """Write a tombstone to the transactions' topic, which accepts records only from a client of this name."""
    producer = Producer({"bootstrap.servers": server, "client.id": "__admin_client"}, logger=QUIET)
    name = transactional_id.encode()
    key = (0).to_bytes(2, "big") + len(name).to_bytes(2, "big") + name
    producer.produce(TRANSACTION_STATE, key=key, value=None, partition=partition_for(transactional_id, 4))
    assert producer.flush(SECONDS) == 0


@pytest.mark.parametrize(
    ("options", "code", "reported"),
    [
        (("--topic", "nowhere"), 1, "Error: topic 'nowhere' is not there"),
        (("--group", "nobody"), 1, "Error: group 'nobody' has no such committed offset"),
        (("--group", GROUP, "--topic", "nowhere"), 1, "Error: group 'booking' has no such committed offset"),
        (("--offsets-partition", "77"), 1, "Error: __consumer_offsets has no partition 77"),
        (("--offsets-partition", "1", "--topic", TOPIC), 2, "give one"),
        (("--events",), 2, "--blocked excludes --events"),
    ],
)
def test_unknown_names_are_errors(server: str, options: tuple[str, ...], code: int, reported: str) -> None:
    done = blocked_command(server, *options)
    assert (done.returncode, reported in done.stderr) == (code, True), done.stderr


def test_the_command_requires_a_cluster() -> None:
    done = within("partitions", "--blocked")
    assert (done.returncode, "name a broker by --bootstrap-server" in done.stderr) == (2, True)
    assert within("partitions", "--topic", "orders").returncode == 2
