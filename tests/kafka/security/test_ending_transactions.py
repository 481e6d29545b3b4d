"""The commands that end a transaction work with exactly the rights in docs/reference/rights.md."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import NewTopic

from offsetstream.cluster.rights import Right
from offsetstream.embedded.clients import QUIET
from offsetstream.embedded.jvm import run_tool
from offsetstream.errors import ClusterError
from testkit.waiting import SECONDS
from tests.kafka.security.broker import Secured

pytestmark = pytest.mark.long

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "rights.md"
TOPIC, WRITER = "rooms", "writer"
READ_TOPIC = Right("READ", "topic", TOPIC)


@contextmanager
def open_transaction(secured: Secured) -> Iterator[int]:
    """Yield the offset of the first record of an open transaction."""
    login = secured.kafka.librdkafka_properties("admin")
    config = {"bootstrap.servers": secured.kafka.bootstrap_server, "transactional.id": WRITER, **login}
    producer, written = Producer(config, logger=QUIET), list[Message]()
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(TOPIC, b"value", partition=0, on_delivery=lambda _, message: written.append(message))
    producer.flush(SECONDS)
    yield int(written[0].offset() or 0)


@pytest.fixture(scope="module", autouse=True)
def topic(secured: Secured) -> None:
    secured.admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(SECONDS)


@pytest.mark.parametrize(
    ("command", "rights"),
    [
        ("abort", {READ_TOPIC, Right("ALTER", "cluster")}),
        ("abort", {READ_TOPIC, Right("CLUSTER_ACTION", "cluster")}),
        ("forceTerminateTransaction", {Right("WRITE", "transactional_id", WRITER)}),
    ],
    ids=["abort with ALTER", "abort with CLUSTER_ACTION", "forceTerminateTransaction"],
)
def test_a_user_with_the_documented_rights_ends_a_transaction(
    secured: Secured, command: str, rights: set[Right]
) -> None:
    (documented,) = (
        line for line in PAGE.read_text("utf-8").splitlines() if f"kafka-transactions.sh {command}" in line
    )
    assert all(right.operation in documented for right in rights)
    login = ["--bootstrap-server", secured.kafka.bootstrap_server, "--command-config", str(secured.file_of("carol"))]
    with open_transaction(secured) as start:
        options = ["--topic", TOPIC, "--partition", "0", "--start-offset", str(start)]
        if command != "abort":
            options = ["--transactionalId", WRITER]
        arguments = [*login, command, *options]
        for lacking in rights:
            with secured.granted("carol", rights - {lacking}), pytest.raises(ClusterError, match=r"(?i)authoriz"):
                run_tool("org.apache.kafka.tools.TransactionsCommand", arguments)
        with secured.granted("carol", rights):
            run_tool("org.apache.kafka.tools.TransactionsCommand", arguments)
