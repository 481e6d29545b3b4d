"""Verdicts about a group itself, not about one partition: members that come and go, and missing offsets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testkit.sampled_logs import SECOND, START_MS, instant
from testkit.tables import reader_of, write_tables

Row = dict[str, Any]
NOW_MS = START_MS + 3_600_000
PLACE = {"offsets_partition": 0, "group_id": "g"}
HOME = PLACE | {"in_coordinator_partition": True}


def status(tmp_path: Path, group: Row, **tables: list[Row]) -> Row:
    rows: dict[str, list[Row]] = {"offsets_partitions": [{"offsets_partition": 0, "log_id": 0}]}
    rows["groups"] = [HOME | {"group_type": "Consumer", "member_count": 0} | group]
    (row,) = reader_of(write_tables(tmp_path, rows | tables), instant(NOW_MS)).rows("group_status")
    return row


def at(number: int, seconds_ago: float) -> Row:
    return {"log_id": 0, "record_offset": number, "record_timestamp": instant(NOW_MS - round(seconds_ago * SECOND))}


def rebalances(
    count: int, *, every: int, leaves: list[tuple[str, str]], comes_back: bool = True
) -> dict[str, list[Row]]:
    """A number of rebalances, each by a client that leaves; with `comes_back` it has joined before."""
    history = [
        PLACE | at(number, every * (count - number)) | {"group_epoch": number + 1, "is_removed": False}
        for number in range(count)
    ]
    members = [
        PLACE
        | at(1000 + number, every * (count - number))
        | {"member_id": f"m{number}", "change": change}
        | {"client_id": client, "client_host": host}
        for number, (client, host) in enumerate(leaves)
        for change in (["joined"] if comes_back else []) + ["left"]
    ]
    return {"group_history": history, "member_history": members}


def test_a_client_that_keeps_rejoining_makes_the_group_unstable(tmp_path: Path) -> None:
    row = status(tmp_path, {"member_count": 1}, **rebalances(18, every=10, leaves=[("a", "/1")] * 9))
    assert (row["verdict"], row["level"]) == ("unstable", "WARN")
    assert row["verdict_reason"] == "18 rebalances in five minutes; the client a left 9 times"


@pytest.mark.parametrize(
    ("count", "every", "leaves", "present"),
    [
        pytest.param(12, 10, [("a", f"/{host}") for host in range(6)], 1, id="a rolling restart"),
        pytest.param(12, 10, [("a", "/1")] * 6, 6, id="a rolling restart on one host"),
        pytest.param(5, 10, [("a", "/1")] * 5, 1, id="fewer than six"),
        pytest.param(12, 60, [("a", "/1")] * 12, 1, id="in more than five minutes"),
    ],
)
def test_a_rolling_restart_is_not_unstable(
    tmp_path: Path, count: int, every: int, leaves: list[tuple[str, str]], present: int
) -> None:
    tables = rebalances(count, every=every, leaves=leaves)
    tables["group_members"] = [
        HOME | {"member_id": f"n{number}", "client_id": "a", "client_host": "/1"} for number in range(present)
    ]
    assert status(tmp_path, {"member_count": present}, **tables)["verdict"] != "unstable"


def test_clients_that_leave_for_good_are_not_unstable(tmp_path: Path) -> None:
    """Seven of eight instances with one client id, all on one host, are stopped."""
    tables = rebalances(7, every=10, leaves=[("rdkafka", "/1")] * 7, comes_back=False)
    tables["group_members"] = [HOME | {"member_id": "n", "client_id": "rdkafka", "client_host": "/1"}]
    assert status(tmp_path, {"member_count": 1}, **tables)["verdict"] != "unstable"


def test_an_owned_partition_without_a_commit_is_not_ok(tmp_path: Path) -> None:
    """The first message may block the group there, while it commits the other partition."""
    cells = [{"topic": "orders", "partition": number} for number in (0, 1)]
    looked = {"sampled_at": instant(NOW_MS), "changed_at": instant(NOW_MS), "log_start_offset": 0}
    ends = [cell | looked | {"high_watermark": 500, "last_stable_offset": 500} for cell in cells]
    commit = PLACE | cells[0] | at(1, 5) | {"committed_offset": 500, "commit_timestamp_ms": NOW_MS - 5000}
    owned = [HOME | cell | {"member_id": "m", "kind": "assigned"} for cell in cells]
    row = status(
        tmp_path,
        {"member_count": 1},
        committed_offsets=[commit | {"in_coordinator_partition": True}],
        offset_commits=[commit | {"is_tombstone": False}],
        topic_partitions=ends,
        member_assignments=owned,
    )
    assert (row["verdict"], row["level"]) == ("unknown", "UNKNOWN")
    assert row["verdict_reason"] == "it has never committed 1 partition that it owns, with 500 messages"


def deleted(**topic: Any) -> Iterator[tuple[str, list[Row]]]:
    cell = PLACE | {"topic": "inventory", "partition": 0}
    commit = cell | at(1, 900) | {"committed_offset": 7, "commit_timestamp_ms": NOW_MS - 900 * SECOND, "topic_id": "A"}
    yield "offset_commits", [commit | {"is_tombstone": False}, cell | at(2, 180) | {"is_tombstone": True}]
    yield "topics", [{"topic": "inventory", "topic_id": "A", "last_seen_at": instant(NOW_MS - 185 * SECOND)} | topic]
    yield "cluster", [{"cluster_id": "c", "offsets_retention_ms": 604_800_000}]
    yield "decoded_logs", [{"offsets_partition": 0, "log_id": 0, "decoded_from_offset": 0}]
    yield "group_history", [PLACE | at(0, 1000) | {"group_type": "Consumer", "group_epoch": 1, "is_removed": False}]


def test_offsets_deleted_with_their_topic_are_explained(tmp_path: Path) -> None:
    row = status(tmp_path, {}, **dict(deleted(deleted_at=instant(NOW_MS - 175 * SECOND))))
    assert (row["verdict"], row["verdict_reason"]) == (
        "unknown",
        "its offsets were deleted with the topic inventory, 180 s ago",
    )


def test_offsets_deleted_by_a_user_are_explained(tmp_path: Path) -> None:
    row = status(tmp_path, {}, **dict(deleted()))
    assert row["verdict_reason"] == "its last offset was deleted 180 s ago (offsets deleted)"


@pytest.mark.parametrize(("members", "verdict"), [(2, "ok"), (0, "unknown")])
def test_connect_workers_commit_nothing_by_design(tmp_path: Path, members: int, verdict: str) -> None:
    group = {"group_type": "Classic", "protocol_type": "connect", "member_count": members}
    row = status(tmp_path, group)
    assert row["verdict"] == verdict
    assert row["verdict_reason"].startswith("a group of the protocol connect, which commits no offsets here")


def test_a_new_owner_may_not_have_committed_yet(tmp_path: Path) -> None:
    own = HOME | {"member_id": "m", "kind": "assigned", "topic": "orders"}
    ends = {"topic": "orders", "log_start_offset": 5, "last_stable_offset": 25, "high_watermark": 25}
    ends |= {"sampled_at": instant(NOW_MS), "changed_at": instant(START_MS)}
    row = status(
        tmp_path,
        {"member_count": 1},
        member_assignments=[own | {"partition": 0}, own | {"partition": 1}],
        topic_partitions=[ends | {"partition": 0}, ends | {"partition": 1}],
    )
    assert (row["verdict"], row["verdict_reason"]) == (
        "unknown",
        "it owns 2 partitions, and has not committed yet; 40 messages are in the log",
    )
    assert status(tmp_path, {})["verdict_reason"] == "no committed offset"


@pytest.mark.parametrize(("read", "reason"), [("in-entory", "expired"), ("in_entory", "offsets deleted")])
def test_readers_of_a_similar_topic_name_do_not_keep_the_offsets(tmp_path: Path, read: str, reason: str) -> None:
    """LIKE was used once: in LIKE, _ matches any character."""
    rows = dict(deleted())
    for row in rows["offset_commits"]:
        row["topic"] = "in_entory"
    rows["cluster"][0]["offsets_retention_ms"] = 1
    member = PLACE | at(0, 1000) | {"member_id": "m", "change": "joined", "subscribed_topics": read}
    told = status(tmp_path, {}, member_history=[member], **rows)["verdict_reason"]
    assert told == f"its last offset was deleted 180 s ago ({reason})"
