"""A broker that has fallen silent, with its connections open: the next question goes to another one."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import NewTopic

from offsetstream.cluster import connection
from offsetstream.cluster.client import Cluster
from offsetstream.cluster.log_ends import LogEnds, TopicPartitionKey
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.errors import UnreachableError
from testkit.waiting import SECONDS, await_

pytestmark = pytest.mark.long

TOPIC, SILENT, CLIENTS = "orders", 2, 8


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=3) as kafka:
        admin = admin_client(kafka.bootstrap_server)
        admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[1]])])[TOPIC].result(SECONDS)
        yield kafka


@pytest.fixture
def silence(kafka: EmbeddedKafka) -> Iterator[Callable[[], None]]:
    """Makes a broker fall silent until the test ends."""
    admin = admin_client(kafka.bootstrap_server)
    await_(lambda: len(admin.list_topics(timeout=SECONDS).brokers) == 3)
    pid = kafka.pids[SILENT]
    yield lambda: os.kill(pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGCONT)


def test_another_broker_tells_of_topics(kafka: EmbeddedKafka, silence: Callable[[], None]) -> None:
    """Which one a client asks first is chance; so there are some."""
    clusters = [Cluster(kafka.bootstrap_server) for _ in range(CLIENTS)]
    known = [cluster.topics() for cluster in clusters]
    assert {TOPIC} == {topic.name for topics in known for topic in topics}
    silence()
    for cluster, topics in zip(clusters, known, strict=True):
        assert cluster.topics() == topics
        assert cluster.hidden_topics([TOPIC]) == frozenset()


@pytest.mark.nightly
def test_another_broker_tells_where_logs_end(kafka: EmbeddedKafka, silence: Callable[[], None]) -> None:
    clusters = [LogEnds(kafka.bootstrap_server) for _ in range(CLIENTS)]
    known = [cluster.ends({TOPIC: None}, {}) for cluster in clusters]
    silence()
    assert [cluster.ends({TOPIC: None}, {}) for cluster in clusters] == known
    assert set(known[0]) == {TopicPartitionKey(TOPIC, 0)}


class Asking(Cluster):
    """Counts how often it turned to another broker."""

    turned = 0

    def _renew(self) -> None:
        self.turned += 1
        super()._renew()


def test_once_it_is_to_stop_no_other_broker_is_asked(kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job whose brokers had all gone ended 75 seconds after its signal: it asked others, and then asked on."""
    monkeypatch.setattr(connection, "TIMEOUT", 6.0)
    stop = threading.Event()
    going_on, stopping = Asking(kafka.bootstrap_server), Asking(kafka.bootstrap_server, is_stopped=stop.is_set)
    for cluster in (going_on, stopping):
        cluster.topic_id(TOPIC)
    stop.set()
    for pid in kafka.pids.values():
        os.kill(pid, signal.SIGSTOP)
    try:
        for cluster in (going_on, stopping):
            for question in (cluster.leaders, cluster.topic_id):
                with pytest.raises(UnreachableError):
                    question(TOPIC)
    finally:
        for pid in kafka.pids.values():
            os.kill(pid, signal.SIGCONT)
    assert (going_on.turned, stopping.turned) == (2, 0)
