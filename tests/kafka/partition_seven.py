"""Commits of groups that are all in offsets partition 7, and their rows in a job's tables."""

import os
import shutil
from collections.abc import Mapping
from itertools import count
from pathlib import Path

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.codec.records import encode_record
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.demo.topics import commit_plainly
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.tables.lookup import Lookup
from testkit.waiting import SECONDS, await_
from tests.kafka.jobs import JobRunner

GROUPS = [f"group-{number}" for number in range(400) if partition_for(f"group-{number}", 50) == 7]
COMMIT = ("group_id", "partition", "committed_offset")


def commit(kafka: EmbeddedKafka, offset: int) -> None:
    places = [TopicPartition("orders", number, offset) for number in (0, 1)]
    commit_plainly(kafka.bootstrap_server, dict.fromkeys(GROUPS, places))


def commit_at(kafka: EmbeddedKafka, group_id: str, timestamp_ms: int) -> int:
    """Write a commit with the given timestamp; return its record offset."""
    key = {"type": 1, "data": {"group": group_id, "topic": "orders", "partition": 0}}
    data = {"offset": 1, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 1}
    delivered: list[int | str | None] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap_server, "client.id": "__admin_client"})
    key_bytes, value_bytes = encode_record(key, {"version": 3, "data": data})
    producer.produce(
        OFFSETS_TOPIC,
        value_bytes,
        key_bytes,
        partition_for(group_id, 50),
        timestamp=timestamp_ms,
        on_delivery=lambda error, message: delivered.append(message.offset() if error is None else error.str()),
    )
    assert producer.flush(SECONDS) == 0
    (offset,) = delivered
    assert isinstance(offset, int), offset
    return offset


def commits(runner: JobRunner) -> dict[tuple[str, int], int]:
    found = Lookup(runner.tables).rows("committed_offsets", COMMIT, {"offsets_partition": [7]})
    return {(row["group_id"], row["partition"]): row["committed_offset"] for row in found}


def all_at(offset: int) -> dict[tuple[str, int], int]:
    return {(group, number): offset for group in GROUPS for number in (0, 1)}


def is_loaded(runner: JobRunner) -> bool:
    # The tables exist once the job has started.
    return "Starting checkpoint" in runner.said.getvalue() and {
        row[0] for row in runner.rows("offsets_partitions", "load_state")
    } == {"OWNED"}


def load_ids(runner: JobRunner) -> dict[int, int]:
    return dict(runner.rows("offsets_partitions", "offsets_partition", "load_id"))


def set_topic_config(kafka: EmbeddedKafka, **config: str) -> None:
    """Set the offsets topic's config, and wait until the single broker applies it.

    A broker applies metadata images in order. It shows a config before it has applied it to its logs, but once it
    shows a later config (here one without effect), the earlier one is applied.
    """
    _alter_and_await(kafka, {name.replace("_", "."): value for name, value in config.items()})
    _alter_and_await(kafka, {"file.delete.delay.ms": str(60_000 + next(_NUMBERS))})


_NUMBERS = count()


def _alter_and_await(kafka: EmbeddedKafka, config: Mapping[str, str]) -> None:
    set_ = [ConfigEntry(*each, incremental_operation=AlterConfigOpType.SET) for each in config.items()]
    resource = ConfigResource(ResourceType.TOPIC, OFFSETS_TOPIC, incremental_configs=set_)
    admin = admin_client(kafka.bootstrap_server)  # it must outlive its answers
    admin.incremental_alter_configs([resource])[resource].result(SECONDS)
    await_(lambda: not config.items() - _shown(admin).items(), lambda: f"the broker never took {config}", pause=0.01)


def _shown(admin: AdminClient) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, OFFSETS_TOPIC)
    return {name: entry.value for name, entry in admin.describe_configs([resource])[resource].result(SECONDS).items()}


def lose_the_log(kafka: EmbeddedKafka) -> None:
    (log,) = kafka.folder.rglob("__consumer_offsets-7")
    kafka.stop_broker(1)
    for file in log.iterdir():
        if file.name != "partition.metadata":
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    kafka.start_broker(1)


def cut_the_log(kafka: EmbeddedKafka, offset: int) -> None:
    """Cut the log as an unclean election does: remove the records from the offset on."""
    (log,) = kafka.folder.rglob("__consumer_offsets-7")
    kafka.stop_broker(1)
    cut_a_log(log, offset)
    kafka.start_broker(1)


def cut_a_log(log: Path, offset: int) -> None:
    """Remove the records from the offset on from a partition's folder, while its broker is stopped."""
    for segment in sorted(log.glob("*.log")):
        data, at = segment.read_bytes(), 0
        while at < len(data) and int.from_bytes(data[at : at + 8], "big") < offset:
            at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        os.truncate(segment, at)
    for file in log.iterdir():  # the broker rebuilds them
        if file.suffix in {".index", ".timeindex", ".txnindex", ".snapshot"}:
            file.unlink()
