"""The topics of the demo and the records in them."""

import json
import random

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from offsetstream.embedded.clients import QUIET

PARTITIONS = {"orders": 6, "payments": 4, "shipments": 3, "page-views": 8, "inventory": 2}
LEDGER = "ledger-entries"  # written in transactions, whose markers take offsets too; no member reads it
_TIMEOUT = 30.0


def create_topics(admin: AdminClient) -> None:
    """Create the topics that are not there yet, with the cluster's own default of replicas."""
    existing = admin.list_topics(timeout=_TIMEOUT).topics
    wanted = {**PARTITIONS, LEDGER: 2}
    missing = [NewTopic(name, count) for name, count in wanted.items() if name not in existing]
    if missing:
        for future in admin.create_topics(missing).values():
            future.result(_TIMEOUT)


def produce_records(bootstrap_server: str, records: int, rng: random.Random) -> None:
    """Write `records` records to each topic the members read, spread over all partitions."""
    producer = Producer({"bootstrap.servers": bootstrap_server, "linger.ms": 20, "client.id": "shop"}, logger=QUIET)
    for topic, partitions in PARTITIONS.items():
        for number in range(records):
            value = json.dumps({"id": number, "amount": rng.randint(1, 500)})
            producer.produce(topic, value, f"customer-{rng.randint(1, 99)}", rng.randrange(partitions))
    producer.flush(_TIMEOUT)


def end_offsets(admin: AdminClient) -> dict[tuple[str, int], int]:
    """Return the end offset of every partition the members read."""
    wanted = {
        TopicPartition(topic, partition): OffsetSpec.latest()
        for topic, partitions in PARTITIONS.items()
        for partition in range(partitions)
    }
    found = admin.list_offsets(wanted)
    return {(place.topic, place.partition): int(future.result(_TIMEOUT).offset) for place, future in found.items()}
