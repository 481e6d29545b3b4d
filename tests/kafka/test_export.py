"""Kafka's own tool imports an export of past offsets: the groups are back at those offsets."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from offsetstream.coordinator.partitioning import partition_for
from offsetstream.demo.topics import commit_plainly
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.jvm import CONSUMER_GROUPS, run_tool
from offsetstream.embedded.kafka import EmbeddedKafka
from testkit.processes import within
from testkit.sampled_logs import START_MS, instant
from testkit.tables import append_rows, new_tables
from testkit.waiting import SECONDS
from tests.kafka.admin_answers import committed_offsets

pytestmark = pytest.mark.long

OFFSETS_PARTITIONS, RECORDS = 50, 20
# Kafka's tool limits offsets to the log. Jackson quotes the second name because of its length.
TOPICS = ("export.orders_v1", "export-of-a-topic-with-a-long-name", "export_audit")
Offsets = dict[tuple[str, str, int], int]


@pytest.fixture(scope="module")
def admin(own_kafka: EmbeddedKafka) -> AdminClient:
    """Create the topics, with two partitions each and records in both."""
    admin = admin_client(own_kafka.bootstrap_server)
    for created in admin.create_topics([NewTopic(topic, 2) for topic in TOPICS]).values():
        created.result(SECONDS)
    producer = Producer({"bootstrap.servers": own_kafka.bootstrap_server})
    for topic in TOPICS:
        for number in range(2 * RECORDS):
            producer.produce(topic, b"a record", partition=number % 2)
    assert producer.flush(SECONDS) == 0
    return admin


def committed(admin: AdminClient, groups: tuple[str, ...]) -> Offsets:
    """Return the committed offsets of the groups, from the broker."""
    return {place: found.committed_offset for place, found in committed_offsets(admin, groups).items()}


def commit_all(own_kafka: EmbeddedKafka, groups: tuple[str, ...], first: int) -> None:
    """Commit a different offset for each group and partition."""
    places = [(topic, partition) for topic in TOPICS for partition in (0, 1)]
    commits = {
        group: [TopicPartition(*place, first + number + at) for number, place in enumerate(places)]
        for at, group in enumerate(groups)
    }
    commit_plainly(own_kafka.bootstrap_server, commits)


def commits_at(offsets: Offsets, at: datetime, first_record: int) -> list[dict[str, Any]]:
    return [
        {
            "group_id": group,
            "offsets_partition": partition_for(group, OFFSETS_PARTITIONS),
            "topic": topic,
            "partition": partition,
            "committed_offset": offset,
            "metadata": "",
            "commit_timestamp": at,
            "commit_timestamp_ms": int(at.timestamp() * 1000),
            "record_offset": first_record + number,
            "log_id": 0,
        }
        for number, ((group, topic, partition), offset) in enumerate(sorted(offsets.items()))
    ]


def write_tables(root: Path, past: Offsets, present: Offsets) -> datetime:
    """Write a job's tables after the past commits and, ten minutes later, present ones; return an instant between."""
    new_tables(root)
    at = instant(START_MS)
    numbers = range(OFFSETS_PARTITIONS)
    book = {"log_id": 0, "history_complete_from": at - timedelta(minutes=1), "load_state": "OWNED"}
    append_rows(root, "offsets_partitions", [book | {"offsets_partition": number} for number in numbers])
    logs = [{"offsets_partition": number, "log_id": 0, "decoded_from_offset": 0} for number in numbers]
    append_rows(root, "decoded_logs", logs)
    before, after = commits_at(past, at, 0), commits_at(present, at + timedelta(minutes=10), 100)
    history = [
        row | {"record_timestamp": row["commit_timestamp"], "written_day": at.date(), "is_tombstone": False}
        for row in before + after
    ]
    append_rows(root, "offset_commits", history)
    append_rows(root, "committed_offsets", [row | {"in_coordinator_partition": True} for row in after])
    return at + timedelta(minutes=5)


@pytest.mark.parametrize(
    "groups", [('export "one", älter',), ("export 日本, group", "export-plain")], ids=["one group", "two groups"]
)
def test_kafkas_tool_imports_an_export(
    own_kafka: EmbeddedKafka,
    admin: AdminClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    groups: tuple[str, ...],
) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")  # Java decodes its arguments by the locale
    commit_all(own_kafka, groups, 1)
    past = committed(admin, groups)
    commit_all(own_kafka, groups, 10)
    present = committed(admin, groups)
    assert len(past) == len(groups) * 2 * len(TOPICS)
    assert not past.items() & present.items()
    between, file = write_tables(tmp_path / "tables", past, present), tmp_path / "offsets.csv"
    named = [argument for group in groups for argument in ("--group", group)]
    options = ("--at", between.isoformat(), "--tables", str(tmp_path / "tables"), "--file", str(file))
    done = within("offsets", "export", *named, *options)
    assert done.returncode == 0, done.stderr
    tool = ["--bootstrap-server", own_kafka.bootstrap_server, *named, "--reset-offsets", "--from-file", str(file)]
    run_tool(CONSUMER_GROUPS, [*tool, "--execute"])
    assert committed(admin, groups) == past
