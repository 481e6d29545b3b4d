"""A cluster with the topics, its tables, and our command run against both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from offsetstream.cluster.client import Cluster
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from testkit.live_logs import create_topic, write
from testkit.processes import Done, within
from testkit.tables import new_tables
from testkit.waiting import SECONDS
from tests.kafka.reset.stage import RECORDS, Run, moment


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as kafka:
        yield kafka


@pytest.fixture(scope="module")
def admin(kafka: EmbeddedKafka) -> AdminClient:
    """Create the topics `orders` (three partitions, the start of the second is deleted) and `quiet` (empty)."""
    server, admin = kafka.bootstrap_server, admin_client(kafka.bootstrap_server)
    create_topic(server, "orders", 3, {"retention.ms": "-1"})
    create_topic(server, "quiet")
    records = [{"value": str(n), "timestamp": int(moment(n).timestamp() * 1000)} for n in range(RECORDS)]
    for partition in range(3):
        write(server, "orders", *records, partition=partition)
    for done in admin.delete_records([TopicPartition("orders", 1, 4)]).values():
        done.result(SECONDS)
    return admin


@pytest.fixture
def tables(kafka: EmbeddedKafka, admin: AdminClient, tmp_path: Path) -> Path:
    """Return empty tables of the cluster."""
    new_tables(tmp_path / "tables", cluster_id=Cluster(kafka.bootstrap_server).cluster_id())
    return tmp_path / "tables"


@pytest.fixture
def run(kafka: EmbeddedKafka, tables: Path) -> Run:
    def command(*arguments: str) -> Done:
        return within(*arguments, "--bootstrap-server", kafka.bootstrap_server, "--tables", str(tables))

    return command
