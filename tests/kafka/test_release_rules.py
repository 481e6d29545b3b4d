"""Real brokers of each release load, or fail to load, the logs of reference 5.11 as declared."""

from __future__ import annotations

import re

import pytest
from confluent_kafka import Producer

from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from testkit.waiting import SECONDS, await_
from tests.conformance.release_cases import RELEASE_CASES, RELEASES, ReleaseCase
from tests.kafka.partition_seven import commit
from tests.kafka.test_embedded import create_topic

pytestmark = pytest.mark.nightly

_ALL_LINES = 100_000
_ENDED = re.compile(r"(Finished loading of|Failed to load) metadata from __consumer_offsets-(\d+) with")
_LOADED = re.compile(r"Loaded (\w+) group (\S+) with")


def _write(kafka: EmbeddedKafka) -> None:
    """Write all cases. Only this client may write to the topic, and the running coordinator does not read it."""
    failed: list[str] = []
    settings = {"bootstrap.servers": kafka.bootstrap_server, "client.id": "__admin_client"}
    producer = Producer(settings | {"message.max.bytes": 2_000_000, "linger.ms": 200})
    for case in RELEASE_CASES:
        for key, value in case.pairs:
            producer.produce(
                OFFSETS_TOPIC,
                value,
                key,
                case.partition,
                on_delivery=lambda error, _: failed.append(error.str()) if error is not None else None,
            )
    assert (producer.flush(SECONDS), failed) == (0, [])


def _type(case: ReleaseCase, ended: dict[int, str], loaded: dict[str, str]) -> str | None:
    return loaded.get(case.group, "").capitalize() if ended[case.partition].startswith("Finished") else None


@pytest.mark.parametrize("release", RELEASES)
def test_a_broker_loads_or_fails_as_declared(release: str) -> None:
    partitions = {case.partition for case in RELEASE_CASES}
    assert len(partitions) == len(RELEASE_CASES)  # a failed load affects all groups of its partition
    with EmbeddedKafka(release) as kafka:
        create_topic(admin_client(kafka.bootstrap_server), "orders")
        commit(kafka, 1)  # creates the offsets topic
        _write(kafka)
        before = len(kafka.logs(_ALL_LINES))
        kafka.restart()
        logged = ""

        def ended() -> dict[int, str]:
            nonlocal logged
            logged = kafka.logs(_ALL_LINES)[before:]
            return {int(partition): how for how, partition in _ENDED.findall(logged)}

        await_(lambda: partitions <= ended().keys(), lambda: f"partitions not loaded: {partitions - ended().keys()}")
        loaded = {group: kind for kind, group in _LOADED.findall(logged)}
        found = {case.group: _type(case, ended(), loaded) for case in RELEASE_CASES}
    assert found == {case.group: case.type_in(release) for case in RELEASE_CASES}
