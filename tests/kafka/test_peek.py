"""`peek` shows the records that a consumer would get next, from a real broker."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from offsetstream import commit_offsets
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from testkit.live_logs import await_end, create_topic, numbered, transaction, write
from testkit.processes import Done, within
from testkit.waiting import SECONDS

TOPIC, PLACE = "orders", ("--topic", "orders", "--partition", "0")
STARTED_MS = 1_767_225_600_000  # 2026-01-01


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with EmbeddedKafka() as kafka:
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
    admin = admin_client(server)
    for deleted in admin.delete_records([TopicPartition("trimmed", 0, 4)]).values():
        deleted.result(SECONDS)
    for offset in (3, 11):
        done = peek(server, "--topic", "trimmed", "--partition", "0", "--offset", str(offset))
        assert (done.returncode, done.stderr) == (
            1,
            f"Error: trimmed-0: OFFSET_OUT_OF_RANGE: the log starts at 4 and ends at 10; {offset} is not in it\n",
        )
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
        (("--group", "nobody"), 1, "Error: group 'nobody' has no such committed offset."),
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
