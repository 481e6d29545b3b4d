"""Commits of groups without members: by consumers with manual assignment, and in transactions."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed

from offsetstream.cluster.records import close
from offsetstream.demo.topics import LEDGER
from offsetstream.embedded.clients import QUIET, is_coordinator_unavailable

_MAX_PARALLEL = 8  # a commit mostly waits for the broker
_TIMEOUT = 30.0
_COORDINATOR_TIMEOUT = 60.0


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
