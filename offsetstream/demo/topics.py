"""The topics of the demo's shop, the records in them, and commits of groups without members."""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed

from offsetstream.cluster.records import close
from offsetstream.embedded.clients import QUIET, is_coordinator_unavailable

PARTITIONS = {"orders": 6, "payments": 4, "shipments": 3, "page-views": 8, "inventory": 2, "invoices": 1}
NIGHTLY = {"returns": 3, "reviews": 2, "loyalty": 2}  # no records while the shop is open
ORDER_HISTORY = "order-history"
LEDGER = "ledger-entries"  # written in transactions; no member reads it, since markers take offsets too
TOPICS = {**PARTITIONS, **NIGHTLY, ORDER_HISTORY: 1, LEDGER: 2}
_TIMEOUT = 30.0
_MAX_PARALLEL = 8  # a commit mostly waits for the broker
_COORDINATOR_TIMEOUT = 60.0
_NO_LEADER_YET = {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}


def create_topics(admin: AdminClient) -> None:
    """Create the missing topics, with the cluster's default replication factor."""
    existing = admin.list_topics(timeout=_TIMEOUT).topics
    missing = [NewTopic(name, count) for name, count in TOPICS.items() if name not in existing]
    if missing:
        for future in admin.create_topics(missing).values():
            future.result(_TIMEOUT)


def shop(bootstrap_server: str) -> Producer:
    """Return a producer for the shop's records."""
    return Producer({"bootstrap.servers": bootstrap_server, "linger.ms": 20, "client.id": "shop"}, logger=QUIET)


def write_records(producer: Producer, topics: Iterable[str], records: int, rng: random.Random) -> None:
    """Write `records` JSON records to each topic, spread over all partitions."""
    for topic in topics:
        for number in range(records):
            value = json.dumps({"id": number, "amount": rng.randint(1, 500)})
            producer.produce(topic, value, f"customer-{rng.randint(1, 99)}", rng.randrange(TOPICS[topic]))
    producer.flush(_TIMEOUT)


def produce_records(bootstrap_server: str, records: int, rng: random.Random) -> None:
    """Write `records` JSON records to each topic that healthy groups read, spread over all partitions."""
    write_records(shop(bootstrap_server), (*PARTITIONS, *NIGHTLY), records, rng)


def _is_temporary(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _NO_LEADER_YET


@retry(retry=retry_if_exception(_is_temporary), stop=stop_after_delay(_TIMEOUT), wait=wait_fixed(0.2), reraise=True)
def end_offsets(admin: AdminClient) -> dict[tuple[str, int], int]:
    """Return the end offset of every partition of the demo's topics. Waits until new topics have leaders."""
    requests = {
        TopicPartition(topic, partition): OffsetSpec.latest()
        for topic, partitions in TOPICS.items()
        for partition in range(partitions)
    }
    futures = admin.list_offsets(requests)
    return {(each.topic, each.partition): int(future.result(_TIMEOUT).offset) for each, future in futures.items()}


def commit_plainly(bootstrap_server: str, commits: Mapping[str, Sequence[TopicPartition]]) -> None:
    """Commit offsets for each group, with a consumer that assigns itself the partitions and joins no group."""
    with ThreadPoolExecutor(_MAX_PARALLEL) as pool:
        list(pool.map(lambda group: _commit_one(bootstrap_server, group, commits[group]), commits))


def commit_in_transaction(
    bootstrap_server: str, group_id: str, offsets: Sequence[TopicPartition], *, abort: bool
) -> None:
    """Commit a group's offsets and a ledger record in one transaction, or abort that transaction."""
    producer = Producer({"bootstrap.servers": bootstrap_server, "transactional.id": f"{group_id}-writer"}, logger=QUIET)
    consumer = _consumer(bootstrap_server, group_id)
    try:
        producer.init_transactions(_TIMEOUT)
        producer.begin_transaction()
        producer.produce(LEDGER, f"booked up to {offsets[0].offset}", group_id)
        producer.send_offsets_to_transaction(list(offsets), consumer.consumer_group_metadata(), _TIMEOUT)
        if abort:
            producer.abort_transaction(_TIMEOUT)
        else:
            producer.commit_transaction(_TIMEOUT)
    finally:
        close(consumer)


@retry(
    retry=retry_if_exception(lambda error: is_coordinator_unavailable(error) or _is_topic_new(error)),
    stop=stop_after_delay(_COORDINATOR_TIMEOUT),
    wait=wait_fixed(0.2),
    reraise=True,
)
def _commit_one(bootstrap_server: str, group_id: str, offsets: Sequence[TopicPartition]) -> None:
    consumer = _consumer(bootstrap_server, group_id)
    try:
        consumer.assign([TopicPartition(each.topic, each.partition) for each in offsets])
        consumer.commit(offsets=list(offsets), asynchronous=False)
    finally:
        close(consumer)


def _is_topic_new(error: BaseException) -> bool:
    """Whether this broker may not know a topic yet, although another one made it."""
    return isinstance(error, KafkaException) and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def _consumer(bootstrap_server: str, group_id: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap_server,
            "group.id": group_id,
            "client.id": f"{group_id}-job",
            "enable.auto.commit": False,
        },
        logger=QUIET,
    )
