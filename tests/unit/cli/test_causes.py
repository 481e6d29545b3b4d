"""One cause that many groups have is told once, before the groups."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from testkit.field_rules import Limits
from testkit.page import Page
from testkit.sampled_logs import SECOND, instant
from testkit.tables import new_tables
from tests.unit.cli.conftest import Run
from tests.unit.views.windows import NOW_MS, Window, tables_of

CAUSE = "an open transaction on __consumer_offsets-0"


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """Three groups whose commits of the last two minutes nobody can read, also of the one of which nothing waited."""
    looks = tuple((1000 + number, NOW_MS - (60 - number) * 10 * SECOND) for number in range(61))
    windows = [
        Window(number, looks, tuple((end - lag, at) for end, at in looks[:-12]), Limits(), window_seconds=300)
        for number, lag in enumerate((20, 30, -12))
    ]
    rows = tables_of(windows)
    rows.pop("thresholds")
    rows["cluster"] = [{"cluster_id": "c", "ended_at": instant(NOW_MS)}]
    book = {"offsets_partition": 0, "log_id": 0, "load_state": "OWNED", "caught_up_at": instant(NOW_MS)}
    rows["offsets_partitions"] = [book | {"last_stable_offset_since": instant(NOW_MS - 119 * SECOND)}]
    new_tables(tmp_path / "tables", rows)
    return tmp_path / "tables"


def test_status_names_the_shared_cause_first(run: Run, held: Path) -> None:
    shown = run("groups", "status", tables=held)
    told = f"3 groups: {CAUSE}; 'offsetstream partitions --blocked' shows what ends it"
    assert told in shown.stderr.splitlines()
    rows = json.loads(run("groups", "status", "--output", "json", tables=held).stdout)
    assert sorted((row["verdict"], row["cause"]) for row in rows if row["cause"]) == [("blocked", CAUSE)] * 3
    assert told not in run("groups", "status", "--group", "group-0", tables=held).stderr


def test_the_audit_says_that_more_may_have_happened(run: Run, held: Path) -> None:
    said = run("offsets", "audit", "--since", "2026-01-01", tables=held).stderr
    assert "an open transaction blocks 1 of 1 offsets partition since" in said
    assert "more may have happened than this answer shows" in said


def test_the_report_names_the_shared_cause(run: Run, held: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    assert run("report", "--file", str(file), tables=held).exit_code == 0
    assert f"3 groups: {CAUSE}." in Page(file).text


OLD, NEW = "A" * 22, "B" * 22
BEGAN, WENT = instant(NOW_MS - 600 * SECOND), instant(NOW_MS - 60 * SECOND)
GONE = {"topic": "t", "topic_id": OLD, "partitions": 3, "first_seen_at": BEGAN, "last_seen_at": BEGAN}
GONE |= {"deleted_at": WENT}
ANEW = {"topic": "t", "topic_id": NEW, "partitions": 3, "first_seen_at": WENT, "last_seen_at": instant(NOW_MS)}
BOOK = {"offsets_partition": 0, "log_id": 0, "load_state": "OWNED", "caught_up_at": instant(NOW_MS)}
OTHER_BOOK = BOOK | {"offsets_partition": 1}
LONG_AGO = {"caught_up_at": instant(NOW_MS - 600 * SECOND)}
LEADERLESS = {"error": "LEADER_NOT_AVAILABLE", "leader_id": 3}
Tables = dict[str, list[dict[str, Any]]]


def changed(rows: Tables, *tables: str, **values: Any) -> None:
    for table in tables:
        for row in rows[table]:
            row.update(values)


def a_deleted_topic(rows: Tables) -> None:
    rows["topics"] = [GONE]
    changed(rows, "topic_partitions", error="UNKNOWN_TOPIC_OR_PARTITION")


def a_recreated_topic(rows: Tables) -> None:
    """All that was committed lies beyond the end of the new log."""
    rows["topics"] = [GONE, ANEW]
    changed(rows, "topic_partitions", topic_id=NEW, high_watermark=7, last_stable_offset=7, readable_end=None)
    rows["end_offsets"] = []


def a_recreated_topic_that_is_read_again(rows: Tables) -> None:
    """The members have begun anew, and stay behind."""
    a_recreated_topic(rows)
    changed(rows, "topic_partitions", high_watermark=200, last_stable_offset=200)
    for last in rows["committed_offsets"]:
        again = last | {"record_offset": last["record_offset"] + 1, "committed_offset": 5}
        again |= {"record_timestamp": WENT, "commit_timestamp": WENT, "commit_timestamp_ms": NOW_MS - 60 * SECOND}
        last.update(again)
        del again["in_coordinator_partition"]
        rows["offset_commits"].append(again | {"is_tombstone": False})


def offsets_that_went_with_their_topic(rows: Tables) -> None:
    rows["topics"] = [GONE]
    for last in rows["committed_offsets"]:
        dead = {name: last[name] for name in ("offsets_partition", "log_id", "group_id", "topic", "partition")}
        dead |= {"record_offset": last["record_offset"] + 1, "record_timestamp": WENT, "is_tombstone": True}
        rows["offset_commits"].append(dead)
    rows["committed_offsets"] = rows["topic_partitions"] = []
    rows["decoded_logs"] = [{"offsets_partition": 0, "log_id": 0, "decoded_from_offset": 0}]
    rows["cluster"][0]["offsets_retention_ms"] = 604_800_000


def a_broker_that_led_their_topic(rows: Tables) -> None:
    changed(rows, "topic_partitions", **LEADERLESS)


def a_broker_that_coordinated_them(rows: Tables) -> None:
    """Commits stopped two minutes ago, and the job looks at other offsets partitions."""
    rows["offsets_partitions"] = [BOOK | {"coordinator_available": False, "coordinator_id": 3}, dict(OTHER_BOOK)]


def such_a_broker_for_longer(rows: Tables) -> None:
    a_broker_that_coordinated_them(rows)
    rows["offsets_partitions"][0] |= LONG_AGO
    rows["cluster"][0] |= {"sample_interval_ms": 10_000, "ended_at": None}
    rows["offsets_partitions"][1]["caught_up_at"] = datetime(2100, 1, 1, tzinfo=UTC)


def a_partition_that_cannot_be_loaded(rows: Tables) -> None:
    such_a_broker_for_longer(rows)
    rows["offsets_partitions"][0] |= {"load_state": "FAILED", "coordinator_available": True}


def a_job_that_does_not_look(rows: Tables) -> None:
    """Whose last look saw a partition without a leader."""
    a_broker_that_coordinated_them(rows)
    rows["cluster"][0] |= {"sample_interval_ms": 10_000, "ended_at": None}


CAUSES: dict[str, tuple[Callable[[Tables], None], str, str]] = {
    "deleted": (a_deleted_topic, "unknown", "the topic t was deleted"),
    "offsets deleted": (offsets_that_went_with_their_topic, "unknown", "the topic t was deleted"),
    "recreated": (a_recreated_topic, "beyond the end", "the topic t was recreated"),
    "read again": (a_recreated_topic_that_is_read_again, "rewound", "the topic t was recreated"),
    "leader gone": (a_broker_that_led_their_topic, "unknown", "partitions that broker 3 led have no leader"),
    "coordinator gone": (a_broker_that_coordinated_them, "stopped", "partitions that broker 3 led have no leader"),
    "gone for longer": (such_a_broker_for_longer, "unknown", "partitions that broker 3 led have no leader"),
    "not loaded": (a_partition_that_cannot_be_loaded, "unknown", "their offsets partitions could not be loaded"),
    "no job": (a_job_that_does_not_look, "unknown", "the job has not checked"),
}


@pytest.mark.parametrize("name", CAUSES)
def test_a_shared_cause_is_one_line(run: Run, tmp_path: Path, name: str) -> None:
    happens, verdict, cause = CAUSES[name]
    looks = tuple((1000 + number, NOW_MS - (60 - number) * 10 * SECOND) for number in range(61))
    windows = [
        Window(number, looks, tuple((end - 20, at) for end, at in looks[:-12]), Limits(), window_seconds=300)
        for number in range(3)
    ]
    rows: Tables = dict(tables_of(windows))
    rows.pop("thresholds")
    rows["cluster"] = [{"cluster_id": "c", "ended_at": instant(NOW_MS)}]
    rows["offsets_partitions"] = [dict(BOOK)]
    happens(rows)
    new_tables(tmp_path / "tables", rows)
    shown = run("groups", "status", tables=tmp_path / "tables")
    assert f"3 groups: {cause}" in shown.stderr.splitlines()
    found = json.loads(run("groups", "status", "--output", "json", tables=tmp_path / "tables").stdout)
    assert [(row["verdict"], row["cause"]) for row in found] == [(verdict, cause)] * 3
    assert all(row["reason"] for row in found)
    reason = found[0]["reason"].split(" of the last ")[0]
    assert (reason in shown.stdout) is (name != "no job")
    alone = run("groups", "status", "--group", "group-0", tables=tmp_path / "tables")
    assert f": {cause}" not in alone.stderr
    assert reason in alone.stdout, alone.stderr
    assert run("report", "--file", str(tmp_path / "page.html"), tables=tmp_path / "tables").exit_code == 0
    page = Page(tmp_path / "page.html").text
    assert f"3 groups: {cause}." in page
    assert ("nothing is known of the last" in page.split(cause)[1]) is (name in ("gone for longer", "not loaded"))
