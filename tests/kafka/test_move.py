"""Two hundred groups continue in another cluster, whose logs have the same records at the same or other offsets."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from offsetstream.cluster.client import Cluster
from offsetstream.cluster.connection import QUIET
from offsetstream.cluster.group_admin import group_admin
from offsetstream.cluster.log_ends import RecordTimes, TopicPartitionKey
from offsetstream.cluster.metadata import MetadataCache
from offsetstream.demo.topics import commit_plainly
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.errors import ClusterError
from offsetstream.operations.moves import plan_import, record_times_of
from offsetstream.operations.offset_file import ExportedOffset, RecordTime
from testkit.live_logs import create_topic, write
from testkit.processes import within
from testkit.tables import append_rows, new_tables
from testkit.waiting import SECONDS
from tests.kafka.admin_answers import committed_offsets

pytestmark = pytest.mark.long

SEED, GROUPS, PARTITIONS, RECORDS, TRIMMED = 20, 200, 3, 60, 25
START_MS = 1_763_600_000_000
Log = list[int]  # times of records


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[str, str]]:
    with EmbeddedKafka() as old, EmbeddedKafka() as new:
        yield old.bootstrap_server, new.bootstrap_server


def make_logs(rng: random.Random) -> list[Log]:
    """Return logs with mostly rising timestamps, some equal ones in a row and some late ones."""
    logs = []
    for _ in range(PARTITIONS):
        now, log = START_MS, []
        for _ in range(RECORDS):
            now += rng.choice((0, 0, 1, 500, 40_000))
            log.append(now - rng.choice((0, 0, 0, 0, 45_000)))
        logs.append(log)
    return logs


def write_log(server: str, topic: str, logs: list[Log], since: int = 0) -> None:
    """Write records that contain their own number within their log."""
    admin = admin_client(server)
    admin.create_topics([NewTopic(topic, PARTITIONS, config={"retention.ms": "-1"})])[topic].result(SECONDS)
    producer = Producer({"bootstrap.servers": server}, logger=QUIET)
    for partition, log in enumerate(logs):
        for number, at in list(enumerate(log))[since:]:
            producer.produce(topic, str(number), partition=partition, timestamp=at)
    assert producer.flush(SECONDS) == 0


def write_tables(root: Path, server: str, groups: dict[str, list[TopicPartition]]) -> None:
    new_tables(root, cluster_id=Cluster(server).cluster_id())
    rows = [
        {
            "group_id": group,
            "topic": each.topic,
            "partition": each.partition,
            "committed_offset": each.offset,
            "offsets_partition": 0,
            "in_coordinator_partition": True,
        }
        for group, offsets in groups.items()
        for each in offsets
    ]
    append_rows(root, "committed_offsets", rows)


def read_from_committed(server: str, group: str, topic: str, expected: int) -> list[list[int]]:
    """Return what a consumer of the group reads from its committed offsets, by partition."""
    config = {"bootstrap.servers": server, "group.id": group, "auto.offset.reset": "error"}
    consumer, found = Consumer(config, logger=QUIET), [list[int]() for _ in range(PARTITIONS)]
    consumer.subscribe([topic])
    while sum(map(len, found)) < expected:
        message = consumer.poll(SECONDS)
        assert message is not None, found
        assert message.error() is None, message.error()
        found[message.partition()].append(int(message.value()))
    consumer.close()
    return found


@pytest.mark.parametrize("way", ["same-log", pytest.param("timestamp", marks=pytest.mark.nightly)])
def test_two_hundred_groups_move(clusters: tuple[str, str], tmp_path: Path, way: str) -> None:
    old, new = clusters
    rng = random.Random(SEED)
    logs, topic = make_logs(rng), f"orders-{way}"
    write_log(old, topic, logs)
    first = 0 if way == "same-log" else TRIMMED  # number of deleted records, so that the copy has other offsets
    trimmed = [TopicPartition(topic, partition, first) for partition in range(PARTITIONS)]
    admin = admin_client(old)
    for deleted in admin.delete_records(trimmed).values():
        deleted.result(SECONDS)
    write_log(new, f"old.{topic}", logs, first)
    groups = {
        f"{way}-{number}": [
            TopicPartition(topic, partition, rng.choice((RECORDS, rng.randint(first, RECORDS))))
            for partition in range(PARTITIONS)
        ]
        for number in range(GROUPS)
    }
    commit_plainly(old, groups)
    write_tables(tmp_path / "old", old, groups)
    file = str(tmp_path / "offsets.csv")
    exported = within(
        "offsets", "export", "--all-groups", "--with-times", "--bootstrap-server", old, "--file", file,
        "--tables", str(tmp_path / "old"),
    )  # fmt: skip
    assert exported.returncode == 0, exported.stderr
    new_tables(tmp_path / "new", cluster_id=Cluster(new).cluster_id())
    moving = ["offsets", "import", file, "--rename-topic", r"(orders-.*)=old.\1", "--bootstrap-server", new]
    moving += ["--tables", str(tmp_path / "new"), "--output", "json"]
    assert within(*moving).returncode == 2  # the options do not say how the offsets correspond
    moving += ["--same-log"] if way == "same-log" else ["--translate", "timestamp"]
    imported = within(*moving, "--execute")
    assert imported.returncode == 0, imported.stderr
    imported_rows = {(row["group"], row["partition"]): row for row in json.loads(imported.stdout)}
    assert len(imported_rows) == GROUPS * PARTITIONS
    committed = {
        place: each.committed_offset for place, each in committed_offsets(admin_client(new), tuple(groups)).items()
    }
    again: dict[str, int] = {}
    for group, offsets in groups.items():
        for each in offsets:
            offset_in_copy = committed[group, f"old.{topic}", each.partition]
            offset_in_original = offset_in_copy + first  # in the original log
            read_again = each.offset - offset_in_original
            assert read_again >= 0, (group, each)
            assert imported_rows[group, each.partition]["read_again"] == read_again, (group, each)
            again[group] = again.get(group, 0) + read_again
    assert (sum(again.values()) > 0) == (way == "timestamp")
    for group in list(groups)[:5]:
        unread = sum(RECORDS - each.offset for each in groups[group])
        if unread + again[group]:
            found = read_from_committed(new, group, f"old.{topic}", unread + again[group])
            for each in groups[group]:
                assert found[each.partition][-1:] in ([RECORDS - 1], [])
                assert set(range(each.offset, RECORDS)) <= set(found[each.partition])


class BusyLog(MetadataCache):
    """A cluster whose log gets two records, the second one later, just before the query for its newest record."""

    def record_times(self, since: Mapping[TopicPartitionKey, int]) -> dict[TopicPartitionKey, RecordTimes]:
        for at in (START_MS + 1000, START_MS + 2000):
            write(self.bootstrap_server, "busy", {"value": "new", "timestamp": at})
        return super().record_times(since)


def test_records_that_arrive_during_the_queries_are_not_taken_for_read(clusters: tuple[str, str]) -> None:
    server, _ = clusters
    create_topic(server, "busy", config={"retention.ms": "-1"})
    write(server, "busy", *[{"value": "old", "timestamp": START_MS}] * 3)
    times, missing = record_times_of(BusyLog(server), {}, {"done": {("busy", 0): 3}, "last": {("busy", 0): 2}}, 30)
    assert (times, missing) == (
        {(("busy", 0), 3): RecordTime(START_MS + 1000, 0), (("busy", 0), 2): RecordTime(START_MS, 2)},
        set(),
    )


class SilentLeader(MetadataCache):
    """A cluster whose leaders do not answer which record is the first one since a time."""

    def first_since_each(self, since_ms: Mapping[TopicPartitionKey, int]) -> dict[TopicPartitionKey, int | str | None]:
        return dict.fromkeys(since_ms, "NOT_LEADER_OR_FOLLOWER")


def test_a_missing_answer_is_not_taken_for_the_end_of_the_log(clusters: tuple[str, str]) -> None:
    _, server = clusters
    create_topic(server, "silent")
    write(server, "silent", {"value": "a record"})
    cluster = SilentLeader(server)
    moved = [ExportedOffset("group", "silent", 0, 0, RecordTime(START_MS, 0))]
    with (
        group_admin(cluster, {}, 30, ("READ",)) as admin,
        pytest.raises(ClusterError, match="silent-0: NOT_LEADER_OR_FOLLOWER"),
    ):
        plan_import(cluster, admin, moved, 1, same_log=False)


def test_a_group_that_is_ahead_in_the_new_cluster_reads_again(clusters: tuple[str, str]) -> None:
    _, server = clusters
    create_topic(server, "ahead", config={"retention.ms": "-1"})
    write(server, "ahead", *[{"value": str(number), "timestamp": START_MS + number} for number in range(10)])
    commit_plainly(server, {"ahead": [TopicPartition("ahead", 0, 9)]})
    cluster = MetadataCache(server)
    with group_admin(cluster, {}, 30, ("READ",)) as admin:
        for moved, same_log, again in (
            (ExportedOffset("ahead", "ahead", 0, 2), True, 7),
            (ExportedOffset("ahead", "ahead", 0, 200, RecordTime(START_MS + 4, 3)), False, 5),
            (ExportedOffset("behind", "ahead", 0, 200, RecordTime(START_MS + 4, 3)), False, 3),
            (ExportedOffset("behind", "ahead", 0, 2), True, 0),
        ):
            (change,) = plan_import(cluster, admin, [moved], 30, same_log=same_log).changes
            assert change.read_again == again, moved


def test_a_log_with_other_timestamps_is_no_copy(clusters: tuple[str, str]) -> None:
    _, server = clusters
    create_topic(server, "appended", config={"message.timestamp.type": "LogAppendTime"})
    create_topic(server, "thinned", config={"retention.ms": "-1"})
    write(server, "appended", *[{"value": str(number)} for number in range(10)])
    write(server, "thinned", *[{"value": str(number), "timestamp": START_MS + 10 * number} for number in range(10)])
    ahead, present, missing = 4_000_000_000_000, START_MS + 40, START_MS + 45
    cluster = MetadataCache(server)
    with group_admin(cluster, {}, 30, ("READ",)) as admin:
        for topic, timed, reason in (
            ("appended", RecordTime(ahead, 0), "LogAppendTime"),
            ("appended", RecordTime(START_MS, 3), "LogAppendTime"),
            ("thinned", RecordTime(missing, 0), f"no record here has the timestamp {missing}.* is {START_MS + 50}"),
            ("thinned", RecordTime(missing, 1), None),  # the original log also has another first record since that time
            ("thinned", RecordTime(present, 0), None),
            ("thinned", RecordTime(ahead, 0), None),  # such a record may still arrive
        ):
            plan = plan_import(cluster, admin, [ExportedOffset("g", topic, 0, 5, timed)], 30, same_log=False)
            found = [(each.kind, each.place, bool(re.search(reason or "", each.told))) for each in plan.objections]
            assert found == ([] if reason is None else [("other-times", (topic, 0), True)]), (topic, timed)
