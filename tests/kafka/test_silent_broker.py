"""If a broker falls silent with open connections, the next request goes to another broker."""

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
def silence_broker(kafka: EmbeddedKafka) -> Iterator[Callable[[], None]]:
    """Return a function that makes a broker fall silent until the test ends."""
    admin = admin_client(kafka.bootstrap_server)
    await_(lambda: len(admin.list_topics(timeout=SECONDS).brokers) == 3)
    pid = kafka.pids[SILENT]
    yield lambda: os.kill(pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGCONT)


def test_another_broker_answers_for_topics(kafka: EmbeddedKafka, silence_broker: Callable[[], None]) -> None:
    """The first broker of a client is random, so the test uses several clients."""
    clusters = [Cluster(kafka.bootstrap_server) for _ in range(CLIENTS)]
    known = [cluster.topics() for cluster in clusters]
    assert {TOPIC} == {topic.name for topics in known for topic in topics}
    silence_broker()
    for cluster, topics in zip(clusters, known, strict=True):
        assert cluster.topics() == topics
        assert cluster.hidden_topics([TOPIC]) == frozenset()


@pytest.mark.nightly
def test_another_broker_answers_for_end_offsets(kafka: EmbeddedKafka, silence_broker: Callable[[], None]) -> None:
    clusters = [LogEnds(kafka.bootstrap_server) for _ in range(CLIENTS)]
    known = [cluster.ends({TOPIC: None}, {}) for cluster in clusters]
    silence_broker()
    assert [cluster.ends({TOPIC: None}, {}) for cluster in clusters] == known
    assert set(known[0]) == {TopicPartitionKey(TOPIC, 0)}


class CountingCluster(Cluster):
    """Counts how often the client switches to another broker."""

    switches = 0

    def _renew(self) -> None:
        self.switches += 1
        super()._renew()


def test_a_stopping_client_tries_no_other_broker(kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: without any broker, a job ended only 75 seconds after its signal, because it kept trying others."""
    monkeypatch.setattr(connection, "TIMEOUT", 6.0)
    stop = threading.Event()
    running, stopping = (
        CountingCluster(kafka.bootstrap_server),
        CountingCluster(kafka.bootstrap_server, is_stopped=stop.is_set),
    )
    for cluster in (running, stopping):
        cluster.topic_id(TOPIC)
    stop.set()
    for pid in kafka.pids.values():
        os.kill(pid, signal.SIGSTOP)
    try:
        for cluster in (running, stopping):
            for query in (cluster.leaders, cluster.topic_id):
                with pytest.raises(UnreachableError):
                    query(TOPIC)
    finally:
        for pid in kafka.pids.values():
            os.kill(pid, signal.SIGCONT)
    assert (running.switches, stopping.switches) == (2, 0)
