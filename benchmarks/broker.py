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
# The cleaner leaves a log's last segment alone, so that every measurement finds what was written.
_ONE_SEGMENT = {"offsets.topic.segment.bytes": str(2**30)}
_MEMORY = Path("/dev/shm")  # noqa: S108 - of Linux, and no name is foreseeable
_AS_IN_PRODUCTION = ("-XX:TieredStopAtLevel=4", "-XX:-UseSerialGC", "-XX:+UseG1GC")


@contextmanager
def empty_broker(properties: Mapping[str, str] | None = None, brokers: int = 1) -> Iterator[EmbeddedKafka]:
    """Start brokers whose offsets topic has one commit, and no compaction; `properties` are the server's."""
    server = {**_ONE_SEGMENT, **(properties or {})}
    kafka = EmbeddedKafka(brokers=brokers, properties=server, jvm_options=_AS_IN_PRODUCTION)
    with _in_memory() if brokers > 1 else nullcontext():  # those that get many partitions, each file of which they sync
        kafka.start()
    with closing(kafka):
        _make_offsets_topic(kafka.bootstrap_server)
        yield kafka


@contextmanager
def _in_memory() -> Iterator[None]:
    """Have temporary folders in memory meanwhile, where there is a file system for that."""
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
    """Make the broker create the topic, as any first commit does."""
    topic = NewTopic(CLIENT_TOPIC, CLIENT_PARTITIONS, 1)
    admin = AdminClient({"bootstrap.servers": bootstrap_server})
    admin.create_topics([topic])[topic.topic].result(30)
    consumer = Consumer({"bootstrap.servers": bootstrap_server, "group.id": FIRST_GROUP})
    first_commit = retry(retry=retry_if_exception_type(KafkaException), stop=stop_after_delay(30), wait=wait_fixed(0.5))
    first_commit(consumer.commit)(offsets=[TopicPartition(topic.topic, 0, 0)], asynchronous=False)
    consumer.close()


@contextmanager
def segments_at_rest(kafka: EmbeddedKafka) -> Iterator[dict[int, Path]]:
    """Kill the only broker, so that it checks its logs when it starts again at the end.

    Yield the segment file of each offsets partition; the caller may write to them.
    """
    kafka.stop_broker(1, kill=True)
    logs = kafka.folder.rglob(f"{TOPIC}-*")
    yield {int(folder.name.rpartition("-")[2]): folder / f"{0:020d}.log" for folder in logs}
    kafka.start_broker(1)
