"""The topics of the demo's shop and the records in them."""

import json
import random
from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed

from offsetstream.embedded.clients import QUIET

PARTITIONS = {"orders": 6, "payments": 4, "shipments": 3, "page-views": 8, "inventory": 2, "invoices": 1}
NIGHTLY = {"returns": 3, "reviews": 2, "loyalty": 2}  # nothing is written here while the shop is open
ORDER_HISTORY = "order-history"
LEDGER = "ledger-entries"  # written in transactions, whose markers take offsets too; no member reads it
TOPICS = {**PARTITIONS, **NIGHTLY, ORDER_HISTORY: 1, LEDGER: 2}
_TIMEOUT = 30.0
_NO_LEADER_YET = {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}


def create_topics(admin: AdminClient) -> None:
    """Create the topics that are not there yet, with the cluster's own default of replicas."""
    existing = admin.list_topics(timeout=_TIMEOUT).topics
    missing = [NewTopic(name, count) for name, count in TOPICS.items() if name not in existing]
    if missing:
        for future in admin.create_topics(missing).values():
            future.result(_TIMEOUT)


def shop(bootstrap_server: str) -> Producer:
    """Return the producer that writes the shop's records."""
    return Producer({"bootstrap.servers": bootstrap_server, "linger.ms": 20, "client.id": "shop"}, logger=QUIET)


def write_records(producer: Producer, topics: Iterable[str], records: int, rng: random.Random) -> None:
    """Write `records` records of JSON to each of the topics, spread over all partitions."""
    for topic in topics:
        for number in range(records):
            value = json.dumps({"id": number, "amount": rng.randint(1, 500)})
            producer.produce(topic, value, f"customer-{rng.randint(1, 99)}", rng.randrange(TOPICS[topic]))
    producer.flush(_TIMEOUT)


def produce_records(bootstrap_server: str, records: int, rng: random.Random) -> None:
    """Write `records` records to each topic that groups read all of, spread over all partitions."""
    write_records(shop(bootstrap_server), (*PARTITIONS, *NIGHTLY), records, rng)


def _passes(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _NO_LEADER_YET


@retry(retry=retry_if_exception(_passes), stop=stop_after_delay(_TIMEOUT), wait=wait_fixed(0.2), reraise=True)
def end_offsets(admin: AdminClient) -> dict[tuple[str, int], int]:
    """Return the end offset of every partition of the topics; waits for leaders of topics that are new."""
    wanted = {
        TopicPartition(topic, partition): OffsetSpec.latest()
        for topic, partitions in TOPICS.items()
        for partition in range(partitions)
    }
    found = admin.list_offsets(wanted)
    return {(place.topic, place.partition): int(future.result(_TIMEOUT).offset) for place, future in found.items()}
