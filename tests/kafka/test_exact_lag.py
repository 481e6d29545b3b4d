"""`lag --exact` shows the age of the record that a group reads next, from the logs of a real broker."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from offsetstream import commit_offsets
from offsetstream.cluster.log_ends import LogEnd, LogEnds, TopicPartitionKey
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.jvm import run_tool
from offsetstream.embedded.kafka import EmbeddedKafka
from testkit.live_logs import await_end, create_topic, numbered, transaction, write
from testkit.processes import Done, within
from testkit.waiting import SECONDS, await_

QUICK = {"log.cleaner.backoff.ms": "200", "log.retention.check.interval.ms": "1000"}
HOUR = 3_600_000


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with EmbeddedKafka(properties=QUICK) as kafka:
        yield kafka.bootstrap_server


def written(server: str, topic: str, ages_ms: list[int], partition: int = 0) -> list[int]:
    """Write records of these ages; return their timestamps."""
    now = int(time.time() * 1000)
    times = [now - age for age in ages_ms]
    write(server, topic, *({"value": str(at), "timestamp": at} for at in times), partition=partition)
    return times


def lag_command(server: str, *groups: str, options: tuple[str, ...] = ()) -> Done:
    named = [word for group in groups for word in ("--group", group)]
    return within("lag", "--exact", "--bootstrap-server", server, *named, *options)


def rows(server: str, *groups: str, options: tuple[str, ...] = (), code: int = 0) -> list[dict[str, Any]]:
    done = lag_command(server, *groups, options=(*options, "--output", "json"))
    assert done.returncode == code, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def is_age_of(row: dict[str, Any], written_ms: int) -> bool:
    """Return whether the time lag is exactly the record's age: now, in whole milliseconds, minus its timestamp."""
    return round(float(row["time_lag_seconds"]) * 1000) == int(row["asked_at_ms"]) - written_ms


def test_the_age_of_the_next_record(server: str) -> None:
    create_topic(server, "orders", 4)
    first = written(server, "orders", [3 * HOUR, 2 * HOUR, HOUR])
    written(server, "orders", [HOUR], partition=1)
    commit_offsets(server, "shop", {("orders", 0): 1, ("orders", 1): 1, ("orders", 3): 0})
    commit_offsets(server, "audit", {("orders", 0): 0})
    behind, even, empty = rows(server, "shop")
    assert [behind[name] for name in ("group", "topic", "partition", "current_offset", "log_end_offset", "lag")] == [
        *("shop", "orders", 0, 1, 3, 2)
    ]
    assert is_age_of(behind, first[1])
    assert (behind["next_offset"], behind["timestamp_type"], behind["leader_id"]) == (1, "CreateTime", 1)
    assert [(row["lag"], row["time_lag_seconds"], row["next_offset"]) for row in (even, empty)] == [(0, 0, None)] * 2
    both = rows(server, "shop", "audit", options=("--topic", "orders"))
    assert [(row["group"], row["partition"], row["next_offset"]) for row in both] == [
        ("audit", 0, 0),
        ("shop", 0, 1),
        ("shop", 1, None),
        ("shop", 3, None),
    ]
    assert is_age_of(both[0], first[0])
    text = lag_command(server, "shop").stdout.splitlines()
    assert text[1].split()[:8] == ["shop", "orders", "0", "1", "3", "2", "2", "h"]
    assert text[-1].startswith("A record waits in 1 of 3 partitions, for 2 h at most, as of 20")


def test_offsets_outside_the_log_on_both_sides(server: str) -> None:
    create_topic(server, "trimmed", 2)
    written(server, "trimmed", [HOUR] * 10)
    commit_offsets(server, "late", {("trimmed", 0): 2})
    commit_offsets(server, "early", {("trimmed", 0): 12})
    admin = admin_client(server)  # a variable keeps it alive until its answer arrives
    for deleted in admin.delete_records([TopicPartition("trimmed", 0, 4)]).values():
        deleted.result(SECONDS)
    early, late = rows(server, "late", "early", code=1)
    for row, offset in ((early, 12), (late, 2)):
        assert (row["current_offset"], row["error"], row["time_lag_seconds"]) == (offset, "OFFSET_OUT_OF_RANGE", None)
        assert row["note"] == (f"OFFSET_OUT_OF_RANGE: the log starts at 4 and ends at 10; {offset} is not in it")


@pytest.mark.long
def test_the_next_record_of_a_compacted_log(server: str) -> None:
    compacted = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"}
    create_topic(server, "compacted", config=compacted)
    commit_offsets(server, "compact", {("compacted", 0): 1})
    now = int(time.time() * 1000)
    same = [{"key": "same", "value": str(at), "timestamp": now - HOUR + at} for at in range(8)]
    write(server, "compacted", *same)

    def is_compacted() -> bool:
        write(server, "compacted", {"key": "other", "value": "rolls the segment"})
        return next_offset() not in {1, None}

    def next_offset() -> int | None:
        (row,) = rows(server, "compact")
        offset: int | None = row["next_offset"]
        return offset

    await_(is_compacted)
    (row,) = rows(server, "compact")
    assert row["next_offset"] == 7
    assert is_age_of(row, now - HOUR + 7)


@pytest.mark.long
def test_the_next_record_of_a_transactional_log(server: str) -> None:
    create_topic(server, "booked")
    now = int(time.time() * 1000)
    records = [{**each, "timestamp": now - HOUR + at} for at, each in enumerate(numbered(3))]
    with transaction(server, "one", "booked", *records) as producer:
        producer.abort_transaction(30)
    await_end(server, ("booked", 0))
    commit_offsets(server, "reader", {("booked", 0): 1})
    (row,) = rows(server, "reader")
    # Two aborted records and a control record: there is nothing to read.
    assert (row["lag"], row["time_lag_seconds"], row["error"]) == (3, 0, None)
    (raw,) = rows(server, "reader", options=("--isolation-level", "read_uncommitted"))
    assert (raw["next_offset"], is_age_of(raw, now - HOUR + 1)) == (1, True)
    with transaction(server, "two", "booked", *records) as producer:
        producer.commit_transaction(30)
    await_end(server, ("booked", 0))
    (row,) = rows(server, "reader")
    assert (row["next_offset"], is_age_of(row, now - HOUR)) == (4, True)
    commit_offsets(server, "reader", {("booked", 0): 8})
    with transaction(server, "three", "booked", *records) as producer:
        (row,) = rows(server, "reader")
        assert (row["time_lag_seconds"], row["error"]) == (None, None)
        assert row["note"].startswith("blocked by an open transaction from offset 8 to 11: ")
        (raw,) = rows(server, "reader", options=("--isolation-level", "read_uncommitted"))
        assert is_age_of(raw, now - HOUR)
        producer.abort_transaction(30)


@pytest.mark.long
def test_end_offsets_equal_kafkas_own_tool(server: str) -> None:
    create_topic(server, "compared", 3)
    for number in range(3):
        written(server, "compared", [HOUR] * number, partition=number)
    commit_offsets(server, "tool", {("compared", number): 0 for number in range(3)})
    printed = run_tool(
        "org.apache.kafka.tools.GetOffsetShell", ["--bootstrap-server", server, "--topic", "compared", "--time", "-1"]
    )
    ends = {int(line.split(":")[1]): int(line.split(":")[2]) for line in printed.split()}
    assert {row["partition"]: row["log_end_offset"] for row in rows(server, "tool")} == ends


@pytest.mark.long
def test_a_wrong_broker_clock_is_reported(server: str) -> None:
    create_topic(server, "stamped", config={"message.timestamp.type": "LogAppendTime"})
    written(server, "stamped", [HOUR])
    commit_offsets(server, "stamps", {("stamped", 0): 0})
    (row,) = rows(server, "stamps")
    assert row["timestamp_type"] == "LogAppendTime"
    assert row["time_lag_seconds"] < 1800


@pytest.mark.long
def test_many_partitions_and_groups_are_read_together(server: str) -> None:
    create_topic(server, "wide", 60)
    for number in range(60):
        written(server, "wide", [HOUR, HOUR // 2], partition=number)
    for at in range(3):
        commit_offsets(server, f"wide-{at}", {("wide", number): at for number in range(60)})
    found = rows(server, *(f"wide-{at}" for at in range(3)))
    assert len(found) == 180
    assert {(row["group"], row["next_offset"]) for row in found} == {("wide-0", 0), ("wide-1", 1), ("wide-2", None)}


@pytest.mark.long
def test_a_deleted_topic_is_an_error(server: str) -> None:
    create_topic(server, "deleted", 2)
    commit_offsets(server, "orphan", {("deleted", 1): 0})
    admin = admin_client(server)
    admin.delete_topics(["deleted"])["deleted"].result(SECONDS)
    await_(
        lambda: not isinstance(LogEnds(server).ends({"deleted": [1]}, {}).get(TopicPartitionKey("deleted", 1)), LogEnd)
    )
    # Brokers drop the offsets of a deleted topic; until then the partition has an error.
    done = lag_command(server, "orphan")
    is_reported = (
        "UNKNOWN_TOPIC_OR_PARTITION" in done.stdout or "group 'orphan' has no such committed offset" in done.stderr
    )
    assert (done.returncode, is_reported) == (1, True), done


def test_unknown_groups_and_topics_are_errors(server: str) -> None:
    done = lag_command(server, "nobody")
    assert (done.returncode, done.stderr) == (1, "Error: group 'nobody' has no such committed offset\n")
    in_topic = lag_command(server, "shop", options=("--topic", "nowhere"))
    assert (in_topic.returncode, "group 'shop' has no such committed offset" in in_topic.stderr) == (1, True)
    for options in (("--all-groups",), ("--group", "shop", "--at", "1h"), ()):
        wrong = within("lag", "--exact", "--bootstrap-server", server, *options)
        assert wrong.returncode == 2
    assert within("lag", "--exact", "--group", "shop").returncode == 2
