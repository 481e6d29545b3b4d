"""A cluster with the topics, tables of it, and our command on both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from offsetstream.cluster.connection import QUIET
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.tables.create import create_tables
from offsetstream.tables.path_store import PathStore
from testkit.command import Done, within
from tests.kafka.reset.stage import RECORDS, Run, moment


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as kafka:
        yield kafka


@pytest.fixture(scope="module")
def admin(kafka: EmbeddedKafka) -> AdminClient:
    """Knows orders, of three partitions of which the second has lost its beginning, and quiet, which is empty."""
    admin = admin_client(kafka.bootstrap_server)
    for made in admin.create_topics(
        [NewTopic("orders", 3, config={"retention.ms": "-1"}), NewTopic("quiet", 1)]
    ).values():
        made.result(30)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_server}, logger=QUIET)
    for number in range(3 * RECORDS):
        at = int(moment(number // 3).timestamp() * 1000)
        producer.produce("orders", str(number // 3), partition=number % 3, timestamp=at)
    assert producer.flush(30) == 0
    for done in admin.delete_records([TopicPartition("orders", 1, 4)]).values():
        done.result(30)
    return admin


@pytest.fixture
def tables(kafka: EmbeddedKafka, admin: AdminClient, tmp_path: Path) -> Path:
    """Tables of the cluster, without a row."""
    cluster_id = admin.list_topics(timeout=30).cluster_id
    create_tables(PathStore(str(tmp_path / "tables")), str(cluster_id), "new")
    return tmp_path / "tables"


@pytest.fixture
def run(kafka: EmbeddedKafka, tables: Path) -> Run:
    def command(*arguments: str) -> Done:
        return within(*arguments, "--bootstrap-server", kafka.bootstrap_server, "--tables", str(tables))

    return command
