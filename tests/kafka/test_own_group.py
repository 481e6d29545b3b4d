"""Spark's consumers get a group with a coordinator, even if brokers disagree about coordinators."""

from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions
from pyspark.sql import SparkSession

from offsetstream.cluster.client import Cluster
from offsetstream.cluster.coordinators import is_coordinated
from offsetstream.cluster.rights import GROUP_PREFIX, OFFSETS_TOPIC
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.demo.topics import commit_plainly, create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.spark.source import KafkaSource
from testkit.waiting import SECONDS, await_

pytestmark = pytest.mark.long

BEFORE, NOW = 50, 60


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    """Three brokers, one replica. After the topic got more partitions, only broker 1 was restarted."""
    with EmbeddedKafka(brokers=3, properties={"offsets.topic.replication.factor": "1"}) as kafka:
        admin = admin_client(kafka.bootstrap_server)
        create_topics(admin)
        commit_plainly(kafka.bootstrap_server, {"group": [TopicPartition("orders", 0, 1)]})
        admin.create_partitions([NewPartitions(OFFSETS_TOPIC, NOW)])[OFFSETS_TOPIC].result(SECONDS)
        kafka.stop_broker(1)
        kafka.start_broker(1)
        await_(lambda: None not in leaders(kafka).values())
        # A restarted broker refuses requests for its partitions while it loads them.
        served = [f"{GROUP_PREFIX}-{id_led(kafka, broker, broker)}" for broker in (1, 2)]
        await_(lambda: all(is_coordinated(kafka.bootstrap_server, {}, group) for group in served))
        yield kafka


def leaders(kafka: EmbeddedKafka) -> dict[int, int | None]:
    return Cluster(kafka.bootstrap_server).leaders()


def id_led(kafka: EmbeddedKafka, before: int, now: int) -> UUID:
    """Return a group id whose partitions, by the old and by the new count, have these leaders."""
    led = leaders(kafka)
    while True:
        group_id = uuid4()
        name = f"{GROUP_PREFIX}-{group_id}"
        if (led[partition_for(name, BEFORE)], led[partition_for(name, NOW)]) == (before, now):
            return group_id


def test_a_group_whose_brokers_name_each_other_has_no_coordinator(kafka: EmbeddedKafka) -> None:
    is_coordinated_by_leaders = {
        leader_pair: is_coordinated(kafka.bootstrap_server, {}, f"{GROUP_PREFIX}-{id_led(kafka, *leader_pair)}")
        for leader_pair in ((1, 1), (2, 2), (1, 2))
    }
    assert is_coordinated_by_leaders == {(1, 1): True, (2, 2): True, (1, 2): False}


def test_spark_gets_a_group_that_has_a_coordinator(
    spark: SparkSession, kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the first of these group ids Spark's driver would wait forever."""
    ids = [id_led(kafka, 1, 2), id_led(kafka, 2, 2)]
    monkeypatch.setattr("offsetstream.spark.source.uuid4", lambda: ids.pop(0))
    ends = Cluster(kafka.bootstrap_server).partition_ends(range(NOW))
    topic = KafkaSource(kafka.bootstrap_server, {}, NOW)
    read = topic.read(spark, dict.fromkeys(ends, 0), {number: end.high_watermark for number, end in ends.items()})
    assert read.count() > 0
    assert ids == []
