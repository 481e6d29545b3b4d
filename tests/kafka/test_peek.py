"""`peek` shows the records that a consumer gets next, and `lag --exact` their age, from the logs of a real broker."""

from __future__ import annotations

import base64
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

TOPIC, PLACE = "orders", ("--topic", "orders", "--partition", "0")
STARTED_MS = 1_767_225_600_000  # 2026-01-01
QUICK = {"log.cleaner.backoff.ms": "200", "log.retention.check.interval.ms": "1000"}
HOUR = 3_600_000


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with EmbeddedKafka(properties=QUICK) as kafka:
        create_topic(kafka.bootstrap_server, TOPIC, 3)
        records = [{**each, "timestamp": STARTED_MS + at * 1000} for at, each in enumerate(numbered(20))]
        # All records in one compressed batch.
        write(kafka.bootstrap_server, TOPIC, *records, properties={"compression.type": "zstd", "linger.ms": 1000})
        yield kafka.bootstrap_server


def peek(server: str, *options: str) -> Done:
    return within("peek", "--bootstrap-server", server, *options)


def rows(server: str, *options: str) -> list[dict[str, Any]]:
    done = peek(server, *options, "--output", "json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def offsets(server: str, *options: str) -> list[int]:
    return [row["offset"] for row in rows(server, *options)]


def test_peek_from_an_offset_within_a_batch(server: str) -> None:
    found = rows(server, *PLACE, "--offset", "13", "--max-records", "2", "--values")
    assert [(row["offset"], row["key"], row["value"], row["timestamp_ms"]) for row in found] == [
        (13, "key-13", "value-13", STARTED_MS + 13_000),
        (14, "key-14", "value-14", STARTED_MS + 14_000),
    ]
    (row,) = rows(server, *PLACE, "--offset", "13", "--max-records", "1")
    assert (row["timestamp"], row["timestamp_type"]) == ("2026-01-01T00:00:13.000Z", "CreateTime")
    assert (row["key_size"], row["value_size"], row["key_encoding"], row["headers"]) == (6, 8, "utf-8", [])
    assert "value" not in row


def test_peek_from_a_time_and_the_latest_records(server: str) -> None:
    assert offsets(server, *PLACE, "--at", "2026-01-01T00:00:16.500") == [17, 18, 19]
    assert offsets(server, *PLACE, "--latest", "--max-records", "3") == [17, 18, 19]
    assert offsets(server, *PLACE, "--latest", "--max-records", "50") == list(range(20))
    none = peek(server, *PLACE, "--at", "1ms")
    assert (none.returncode, none.stderr) == (1, "orders-0: nothing to read from offset 20\n")


def test_peek_at_what_a_group_reads_next(server: str) -> None:
    commit_offsets(server, "shop", {(TOPIC, 0): 18, (TOPIC, 1): 0})
    done = peek(server, "--group", "shop")
    assert done.returncode == 0
    assert [line.split()[:3] for line in done.stdout.splitlines()[1:3]] == [
        ["orders", "0", "18"],
        ["orders", "0", "19"],
    ]
    assert done.stdout.splitlines()[-1] == "2 records of 2 partitions."
    assert done.stderr == "orders-1: nothing to read from offset 0\n"
    assert offsets(server, "--group", "shop", *PLACE, "--max-records", "1") == [18]


def test_a_poison_pill_is_shown_safely(server: str) -> None:
    create_topic(server, "poisoned")
    hostile = "\x1b[2J\u202e"
    pill = {
        "key": b"\xff\x00",
        "value": b"\x00\x01\xfe" * 100,
        "headers": [("trace", b"\xff"), (hostile, b"ok"), ("none", None)],
    }
    write(server, "poisoned", pill, {"key": None, "value": None}, {"key": "", "value": hostile})
    position = ("--topic", "poisoned", "--partition", "0", "--offset", "0", "--values")
    first, tombstone, empty = rows(server, *position)
    assert base64.b64decode(first["key"]) == pill["key"]
    assert base64.b64decode(first["value"]) == pill["value"]
    assert (first["key_encoding"], first["value_encoding"], first["value_size"]) == ("base64", "base64", 300)
    assert [(each["name"], each["value"], each["value_encoding"]) for each in first["headers"]] == [
        ("trace", "/w==", "base64"),
        (hostile, "ok", "utf-8"),
        ("none", None, None),
    ]
    names = ("key", "key_size", "value", "value_size", "value_encoding")
    assert [tombstone[name] for name in names] == [None] * 5
    assert [empty[name] for name in names] == ["", 0, hostile, len(hostile.encode()), "utf-8"]
    text = peek(server, *position).stdout
    assert "base64:/wA= " in text
    assert "trace=base64:/w==, \\x1b[2J\\u202e=ok, none" in text
    assert "\x1b" not in text
    assert "…" in text  # the value of 300 bytes
    csv = peek(server, *position, "--output", "csv").stdout
    assert '"[{""name"": ""trace"", ""value"": ""/w=="", ""value_encoding"": ""base64""}' in csv


def test_an_offset_outside_the_log_is_an_error(server: str) -> None:
    create_topic(server, "trimmed")
    write(server, "trimmed", *numbered(10))
    commit_offsets(server, "late", {("trimmed", 0): 3})
    commit_offsets(server, "early", {("trimmed", 0): 11})
    admin = admin_client(server)  # a variable keeps it alive until its answer arrives
    for deleted in admin.delete_records([TopicPartition("trimmed", 0, 4)]).values():
        deleted.result(SECONDS)
    early, late = lags(server, "late", "early", code=1)
    for row, offset in ((early, 11), (late, 3)):
        reason = f"OFFSET_OUT_OF_RANGE: the log starts at 4 and ends at 10; {offset} is not in it"
        done = peek(server, "--topic", "trimmed", "--partition", "0", "--offset", str(offset))
        assert (done.returncode, done.stderr) == (1, f"Error: trimmed-0: {reason}\n")
        assert (row["current_offset"], row["error"], row["time_lag_seconds"]) == (offset, "OFFSET_OUT_OF_RANGE", None)
        assert row["note"] == reason
    assert offsets(server, "--topic", "trimmed", "--partition", "0", "--offset", "4", "--max-records", "1") == [4]
    at_end = peek(server, "--topic", "trimmed", "--partition", "0", "--offset", "10")
    assert (at_end.returncode, "nothing to read from offset 10" in at_end.stderr) == (1, True)


def test_isolation_levels_and_open_transactions(server: str) -> None:
    create_topic(server, "booked")
    position = ("--topic", "booked", "--partition", "0")
    with transaction(server, "aborts", "booked", *numbered(3)) as producer:
        producer.abort_transaction(30)
    with transaction(server, "commits", "booked", *numbered(2, 3)) as producer:
        producer.commit_transaction(30)
    await_end(server, ("booked", 0))
    assert offsets(server, *position, "--offset", "0") == [4, 5]  # 3 and 6 are control records
    assert offsets(server, *position, "--offset", "0", "--isolation-level", "read_uncommitted") == [0, 1, 2, 4, 5]
    assert offsets(server, *position, "--latest", "--max-records", "2") == [4, 5]
    with transaction(server, "stays-open", "booked", *numbered(2)) as producer:
        write(server, "booked", *numbered(1))
        blocked = peek(server, *position, "--offset", "4")
        assert [line.split()[2] for line in blocked.stdout.splitlines()[1:-1]] == ["4", "5"]
        reason = "booked-0: blocked by an open transaction from offset 7 to 10: "
        assert (blocked.returncode, blocked.stderr.startswith(reason)) == (0, True), blocked.stderr
        nothing = peek(server, *position, "--offset", "7")
        assert (nothing.returncode, nothing.stderr.startswith(reason)) == (1, True)
        assert offsets(server, *position, "--offset", "7", "--isolation-level", "read_uncommitted") == [7, 8, 9]
        producer.abort_transaction(30)
    await_end(server, ("booked", 0))
    assert offsets(server, *position, "--offset", "7") == [9]


@pytest.mark.parametrize(
    ("options", "code", "reason"),
    [
        (("--group", "nobody"), 1, "Error: group 'nobody' has no such committed offset"),
        (("--topic", "nowhere", "--partition", "0", "--latest"), 1, "Error: nowhere-0: UNKNOWN_TOPIC_OR_PARTITION"),
        (("--topic", "orders", "--partition", "7", "--offset", "0"), 1, "Error: orders-7: UNKNOWN_TOPIC_OR_PARTITION"),
        (
            ("--topic", "orders", "--partition", "2", "--latest"),
            1,
            "orders-2: nothing to read from offset 0",
        ),
        (("--topic", "orders", "--latest"), 2, "name it by --topic and --partition"),
        ((*PLACE, "--latest", "--offset", "0"), 2, "give exactly one of"),
        ((*PLACE, "--latest", "--group", "shop"), 2, "give exactly one of"),
        (PLACE, 2, "give exactly one of"),
    ],
)
def test_unknown_names_and_wrong_options_are_errors(
    server: str, options: tuple[str, ...], code: int, reason: str
) -> None:
    done = peek(server, *options)
    assert (done.returncode, reason in done.stderr) == (code, True), done.stderr
    assert len(done.stderr.splitlines()) == 1 or code == 2


def written(server: str, topic: str, ages_ms: list[int], partition: int = 0) -> list[int]:
    """Write records of these ages; return their timestamps."""
    now = int(time.time() * 1000)
    times = [now - age for age in ages_ms]
    write(server, topic, *({"value": str(at), "timestamp": at} for at in times), partition=partition)
    return times


def lag_command(server: str, *groups: str, options: tuple[str, ...] = ()) -> Done:
    named = [word for group in groups for word in ("--group", group)]
    return within("lag", "--exact", "--bootstrap-server", server, *named, *options)


def lags(server: str, *groups: str, options: tuple[str, ...] = (), code: int = 0) -> list[dict[str, Any]]:
    done = lag_command(server, *groups, options=(*options, "--output", "json"))
    assert done.returncode == code, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def is_age_of(row: dict[str, Any], written_ms: int) -> bool:
    """Return whether the time lag is exactly the record's age: now, in whole milliseconds, minus its timestamp."""
    return round(float(row["time_lag_seconds"]) * 1000) == int(row["asked_at_ms"]) - written_ms


def test_the_age_of_the_next_record(server: str) -> None:
    create_topic(server, "sold", 4)
    first = written(server, "sold", [3 * HOUR, 2 * HOUR, HOUR])
    written(server, "sold", [HOUR], partition=1)
    commit_offsets(server, "sellers", {("sold", 0): 1, ("sold", 1): 1, ("sold", 3): 0})
    commit_offsets(server, "audit", {("sold", 0): 0})
    behind, even, empty = lags(server, "sellers")
    assert [behind[name] for name in ("group", "topic", "partition", "current_offset", "log_end_offset", "lag")] == [
        *("sellers", "sold", 0, 1, 3, 2)
    ]
    assert is_age_of(behind, first[1])
    assert (behind["next_offset"], behind["timestamp_type"], behind["leader_id"]) == (1, "CreateTime", 1)
    assert [(row["lag"], row["time_lag_seconds"], row["next_offset"]) for row in (even, empty)] == [(0, 0, None)] * 2
    both = lags(server, "sellers", "audit", options=("--topic", "sold"))
    assert [(row["group"], row["partition"], row["next_offset"]) for row in both] == [
        ("audit", 0, 0),
        ("sellers", 0, 1),
        ("sellers", 1, None),
        ("sellers", 3, None),
    ]
    assert is_age_of(both[0], first[0])
    text = lag_command(server, "sellers").stdout.splitlines()
    assert text[1].split()[:8] == ["sellers", "sold", "0", "1", "3", "2", "2", "h"]
    assert text[-1].startswith("A record waits in 1 of 3 partitions, for 2 h at most, as of 20")


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
        (row,) = lags(server, "compact")
        offset: int | None = row["next_offset"]
        return offset

    await_(is_compacted)
    (row,) = lags(server, "compact")
    assert row["next_offset"] == 7
    assert is_age_of(row, now - HOUR + 7)


@pytest.mark.long
def test_the_next_record_of_a_transactional_log(server: str) -> None:
    create_topic(server, "paid")
    now = int(time.time() * 1000)
    records = [{**each, "timestamp": now - HOUR + at} for at, each in enumerate(numbered(3))]
    with transaction(server, "one", "paid", *records) as producer:
        producer.abort_transaction(30)
    await_end(server, ("paid", 0))
    commit_offsets(server, "reader", {("paid", 0): 1})
    (row,) = lags(server, "reader")
    # Two aborted records and a control record: there is nothing to read.
    assert (row["lag"], row["time_lag_seconds"], row["error"]) == (3, 0, None)
    (raw,) = lags(server, "reader", options=("--isolation-level", "read_uncommitted"))
    assert (raw["next_offset"], is_age_of(raw, now - HOUR + 1)) == (1, True)
    with transaction(server, "two", "paid", *records) as producer:
        producer.commit_transaction(30)
    await_end(server, ("paid", 0))
    (row,) = lags(server, "reader")
    assert (row["next_offset"], is_age_of(row, now - HOUR)) == (4, True)
    commit_offsets(server, "reader", {("paid", 0): 8})
    with transaction(server, "three", "paid", *records) as producer:
        (row,) = lags(server, "reader")
        assert (row["time_lag_seconds"], row["error"]) == (None, None)
        assert row["note"].startswith("blocked by an open transaction from offset 8 to 11: ")
        (raw,) = lags(server, "reader", options=("--isolation-level", "read_uncommitted"))
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
    assert {row["partition"]: row["log_end_offset"] for row in lags(server, "tool")} == ends


@pytest.mark.long
def test_a_wrong_broker_clock_is_reported(server: str) -> None:
    create_topic(server, "stamped", config={"message.timestamp.type": "LogAppendTime"})
    written(server, "stamped", [HOUR])
    commit_offsets(server, "stamps", {("stamped", 0): 0})
    (row,) = lags(server, "stamps")
    assert row["timestamp_type"] == "LogAppendTime"
    assert row["time_lag_seconds"] < 1800


@pytest.mark.long
def test_many_partitions_and_groups_are_read_together(server: str) -> None:
    create_topic(server, "wide", 60)
    for number in range(60):
        written(server, "wide", [HOUR, HOUR // 2], partition=number)
    for at in range(3):
        commit_offsets(server, f"wide-{at}", {("wide", number): at for number in range(60)})
    found = lags(server, *(f"wide-{at}" for at in range(3)))
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
    in_topic = lag_command(server, "sellers", options=("--topic", "nowhere"))
    assert (in_topic.returncode, "group 'sellers' has no such committed offset" in in_topic.stderr) == (1, True)
    for options in (("--all-groups",), ("--group", "sellers", "--at", "1h"), ()):
        wrong = within("lag", "--exact", "--bootstrap-server", server, *options)
        assert wrong.returncode == 2
    assert within("lag", "--exact", "--group", "sellers").returncode == 2
