"""A broker with an empty __consumer_offsets."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from benchmarks.commit_log import CLIENT_TOPIC, TOPIC
from offsetstream.embedded.kafka import EmbeddedKafka

CLIENT_PARTITIONS, FIRST_GROUP = 20, "first"
# The cleaner never compacts the last segment. With one large segment, every measurement finds all records.
_ONE_SEGMENT = {"offsets.topic.segment.bytes": str(2**30)}
_MEMORY = Path("/dev/shm")  # noqa: S108 - the folders in it get random names
_AS_IN_PRODUCTION = ("-XX:TieredStopAtLevel=4", "-XX:-UseSerialGC", "-XX:+UseG1GC")


@contextmanager
def empty_broker(properties: Mapping[str, str] | None = None, brokers: int = 1) -> Iterator[EmbeddedKafka]:
    """Start brokers with these properties; their offsets topic has one commit and is never compacted."""
    server = {**_ONE_SEGMENT, **(properties or {})}
    kafka = EmbeddedKafka(brokers=brokers, properties=server, jvm_options=_AS_IN_PRODUCTION)
    with _in_memory() if brokers > 1 else nullcontext():  # several brokers get many partitions, and sync each file
        kafka.start()
    with closing(kafka):
        _make_offsets_topic(kafka.bootstrap_server)
        yield kafka


@contextmanager
def _in_memory() -> Iterator[None]:
    """Create temporary folders in memory, if the system has a file system for that."""
    before = tempfile.tempdir, os.environ.get("TMPDIR")
    if _MEMORY.is_dir():
        tempfile.tempdir = os.environ["TMPDIR"] = str(_MEMORY)
    try:
        yield
    finally:
        tempfile.tempdir = before[0]
        os.environ.pop("TMPDIR", None)
        os.environ |= {} if before[1] is None else {"TMPDIR": before[1]}


def _make_offsets_topic(bootstrap_server: str) -> None:
    """Commit an offset: with the first commit, the broker creates the offsets topic."""
    topic = NewTopic(CLIENT_TOPIC, CLIENT_PARTITIONS, 1)
    admin = AdminClient({"bootstrap.servers": bootstrap_server})
    admin.create_topics([topic])[topic.topic].result(30)
    consumer = Consumer({"bootstrap.servers": bootstrap_server, "group.id": FIRST_GROUP})
    first_commit = retry(retry=retry_if_exception_type(KafkaException), stop=stop_after_delay(30), wait=wait_fixed(0.5))
    first_commit(consumer.commit)(offsets=[TopicPartition(topic.topic, 0, 0)], asynchronous=False)
    consumer.close()


@contextmanager
def segments_at_rest(kafka: EmbeddedKafka) -> Iterator[dict[int, Path]]:
    """Kill the only broker, yield the segment file of each offsets partition, and start the broker again.

    The caller may write to the files: after a kill, a broker checks its logs.
    """
    kafka.stop_broker(1, kill=True)
    logs = kafka.folder.rglob(f"{TOPIC}-*")
    yield {int(folder.name.rpartition("-")[2]): folder / f"{0:020d}.log" for folder in logs}
    kafka.start_broker(1)
