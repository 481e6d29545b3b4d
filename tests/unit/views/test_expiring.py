"""When a committed offset expires, by the state of its group: Kafka's rules (KIP-211), case by case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testkit.sampled_logs import SECOND, START_MS, instant
from testkit.tables import reader_of, write_tables

RETENTION, EMPTY_AFTER = 1000 * SECOND, 100 * SECOND
COMMIT, EMPTY = START_MS + RETENTION, START_MS + EMPTY_AFTER + RETENTION
CLASSIC = {"group_type": "Classic", "protocol_type": "consumer", "state_timestamp": instant(START_MS + EMPTY_AFTER)}
CONSUMER = {"group_type": "Consumer", "protocol_type": "consumer"}
IDLE, BUSY = {"state": "Empty", "member_count": 0}, {"state": "Stable", "member_count": 1}
SINCE_COMMIT, NOBODY = "since the commit", "since the commit: nobody subscribes to the topic"
SUBSCRIBED = "kept: a member subscribes to the topic"

# The group, the topics that a member subscribes to, the client's retention: when the offset expires, and the reason.
CASES: dict[str, tuple[dict[str, Any] | None, list[str], int | None, int | None, str]] = {
    "an empty classic group": (CLASSIC | IDLE, [], None, EMPTY, "since the group became empty"),
    "one of which nobody knows since when": (
        CLASSIC | IDLE | {"state_timestamp": None},
        [],
        None,
        COMMIT,
        SINCE_COMMIT,
    ),
    "a classic group that left the topic": (CLASSIC | BUSY, ["another"], None, COMMIT, NOBODY),
    "one that reads it": (CLASSIC | BUSY, ["orders"], None, None, SUBSCRIBED),
    "one whose subscriptions are not known": (
        CLASSIC | BUSY,
        [],
        None,
        None,
        "kept: the subscriptions of its members are unknown",
    ),
    "one of another protocol": (
        CLASSIC | BUSY | {"protocol_type": "connect"},
        [],
        None,
        None,
        "kept: the group has members, of the protocol connect",
    ),
    "offsets only": ({"group_type": "Classic", "protocol_type": "", "state": "Empty"}, [], None, COMMIT, SINCE_COMMIT),
    "an empty consumer group": (CONSUMER | IDLE, [], None, COMMIT, SINCE_COMMIT),
    "a consumer group that left the topic": (CONSUMER | BUSY, ["another"], None, COMMIT, NOBODY),
    "a consumer group that reads it": (CONSUMER | BUSY, ["orders"], None, None, SUBSCRIBED),
    "as the client asked": (
        CLASSIC | IDLE,
        [],
        START_MS + 7 * SECOND,
        START_MS + 7 * SECOND,
        "as its client requested",
    ),
    "no group": (None, [], None, None, "kept: the coordinator has no such group"),
}


@pytest.mark.parametrize("name", CASES)
def test_when_an_offset_expires(tmp_path: Path, name: str) -> None:
    group, topics, asked, expires_at, told = CASES[name]
    place = {"offsets_partition": 0, "group_id": "g", "in_coordinator_partition": True}
    commit = {"topic": "orders", "partition": 0, "committed_offset": 5, "commit_timestamp_ms": START_MS}
    rows: dict[str, list[dict[str, Any]]] = {
        "cluster": [{"cluster_id": "c", "offsets_retention_ms": RETENTION}],
        "offsets_partitions": [{"offsets_partition": 0}],
        "groups": [] if group is None else [place | group],
        "committed_offsets": [place | commit | {"expire_timestamp_ms": asked}],
        "member_subscriptions": [place | {"member_id": "m", "topic": topic} for topic in topics],
    }
    reader = reader_of(write_tables(tmp_path, rows), instant(START_MS + 50 * SECOND))
    (row,) = reader.rows("expiring_offsets")
    assert (row["expires_at_ms"], row["counted_from"] or row["kept_because"]) == (expires_at, told)
    in_ms = None if expires_at is None else expires_at - START_MS - 50 * SECOND
    assert row["expires_in_ms"] == in_ms
