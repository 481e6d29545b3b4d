"""An answer about now does not outlive the job's last sample: later it is the same, or says that it is stale."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from offsetstream.views.files import all_views
from offsetstream.views.instant import InstantReader
from testkit.examples import seeds
from testkit.field_rules import Limits
from testkit.group_world import GroupWorld
from testkit.sampled_logs import MINUTE, SECOND, START_MS, instant
from testkit.tables import new_tables, reader_of, write_tables
from tests.unit.views.windows import NOW_MS, Window, tables_of

Row = dict[str, Any]
OF_NOW = [name for name, view in all_views().items() if "is_stale" in view.column_names]
BY_THE_CLOCK = {"expires_in_ms": None}  # how long a known condition still lasts
LOOKS = {"cluster_id": "c", "sample_interval_ms": 10_000}


def test_every_column_about_now_is_listed() -> None:
    of_groups = {"group_status", "group_status_partitions", "lag", "time_lag", "idle_groups", "commit_freshness"}
    assert {*OF_NOW} == of_groups | {"freshness", "expiring_offsets", "orphan_offsets"}


@pytest.mark.parametrize("seed", seeds([0, 3], [1, 2, 4, 5]))
def test_a_later_answer_is_the_same_or_says_that_it_is_stale(seed: int, tmp_path: Path) -> None:
    world = GroupWorld(seed, minutes=20, until_minute=12 + seed, changing=1)
    world.rows["cluster"] = [LOOKS | {"offsets_retention_ms": 600_000}]
    folder, now = write_tables(tmp_path, world.rows), instant(world.now_ms)
    for view in OF_NOW:
        told = answers(folder, now, view)
        assert not any(row["is_stale"] for row in told.values())
        assert answers(folder, now + timedelta(seconds=30), view) == told
        later = answers(folder, now + timedelta(hours=1), view)
        assert later.keys() == told.keys()
        assert all(row["is_stale"] for row in later.values())
        if view.startswith("group_status"):
            assert {row["verdict"] for row in later.values()} == {"unknown"}
    then = InstantReader(new_tables(tmp_path / "delta", world.rows), now - timedelta(minutes=1))
    assert not any(row["is_stale"] for row in then.rows("freshness"))


def answers(folder: Path, now: datetime, view: str) -> dict[tuple[Any, ...], Row]:
    place = ("offsets_partition", "group_id", "topic", "partition", "committed_offset")
    return {tuple(row.get(name) for name in place): row | BY_THE_CLOCK for row in reader_of(folder, now).rows(view)}


def window(number: int, *, lag: int = 20) -> Window:
    """A group that commits all the time and stays behind."""
    looks = tuple((1000 + ago, NOW_MS - (60 - ago) * 10 * SECOND) for ago in range(61))
    commits = tuple((end - lag, at) for end, at in looks)
    return Window(number, looks, commits, Limits(), window_seconds=300)


def judged(tmp_path: Path, now_ms: int, cluster: Row, *windows: Window, **book: Any) -> dict[str, Row]:
    rows = tables_of(windows or (window(0),))
    rows["cluster"] = [cluster]
    rows["offsets_partitions"] = [
        {"offsets_partition": 0, "load_state": "OWNED", "caught_up_at": instant(NOW_MS)} | book
    ]
    reader = reader_of(write_tables(tmp_path, rows), instant(now_ms))
    return {row["group_id"]: row for row in reader.rows("group_status")}


# The sampling interval, the age of the last sample, and whether that is too old.
AGES: dict[str, tuple[Row, int, bool]] = {
    "ten seconds": (LOOKS, 119, False),
    "two minutes are the least": (LOOKS, 121, True),
    "a minute": (LOOKS | {"sample_interval_ms": 60_000}, 359, False),
    "six of its own intervals": (LOOKS | {"sample_interval_ms": 60_000}, 361, True),
    "once, within an hour": ({"cluster_id": "c"}, 3599, False),
    "once, long ago": ({"cluster_id": "c"}, 3601, True),
    "a case": (LOOKS | {"ended_at": instant(NOW_MS)}, 1_000_000, False),
}


@pytest.mark.parametrize("name", AGES)
def test_data_is_stale_after_missed_samples(tmp_path: Path, name: str) -> None:
    cluster, seconds, is_stale = AGES[name]
    (row,) = judged(tmp_path, NOW_MS + seconds * SECOND, cluster).values()
    assert (row["is_stale"], row["verdict"] == "unknown") == (is_stale, is_stale)
    assert row["as_of"] == instant(NOW_MS)
    assert row["verdict_reason"].startswith("nothing is known of the last ") is is_stale


@pytest.mark.parametrize(
    ("state", "words"),
    [("FAILED", "its offsets partition could not be loaded"), ("LOADING", "its offsets partition is being loaded")],
)
def test_the_age_of_an_unloaded_partition_is_shown(tmp_path: Path, state: str, words: str) -> None:
    """Even if the job is alive: it samples the offsets topic all the time."""
    old = {"load_state": state, "caught_up_at": instant(NOW_MS - 10 * MINUTE), "next_offset": 7}
    (row,) = judged(tmp_path, NOW_MS, LOOKS, **old).values()
    assert (row["is_stale"], row["level"]) == (True, "UNKNOWN")
    assert row["verdict_reason"] == f"{words}: nothing is known of the last 600 s"


def test_an_idle_topic_is_known_by_its_samples(tmp_path: Path) -> None:
    rows = tables_of((window(0),))
    book = {"offsets_partition": 0, "load_state": "OWNED", "next_offset": 70}
    rows["offsets_partitions"] = [book | {"caught_up_at": instant(NOW_MS - 10 * MINUTE)}]
    offsets_topic = {"topic": "__consumer_offsets", "partition": 0, "log_start_offset": 0, "error": None}
    ages = {}
    for name, last_stable, high in (("applied", 70, 70), ("behind", 71, 71), ("another log", 5, 5)):
        look = offsets_topic | {"last_stable_offset": last_stable, "high_watermark": high}
        look |= {"sampled_at": instant(NOW_MS - SECOND), "changed_at": instant(START_MS)}
        folder = tmp_path / name
        folder.mkdir()
        found = reader_of(
            write_tables(folder, rows | {"topic_partitions": [*rows["topic_partitions"], look]}), instant(NOW_MS)
        )
        ages[name] = found.rows("freshness")[0]["as_of"]
    long_ago = instant(NOW_MS - 10 * MINUTE)
    assert ages == {"applied": instant(NOW_MS - SECOND), "behind": long_ago, "another log": long_ago}


def test_commits_blocked_by_a_transaction_are_shown_and_no_group_is_blamed(tmp_path: Path) -> None:
    """The group commits all the time. Its commits of the last three minutes are behind an open transaction."""
    silent = Window(0, window(0).samples, window(0).commits[:-18], Limits(), window_seconds=300)
    (row,) = judged(tmp_path, NOW_MS, LOOKS, silent).values()
    assert row["verdict"] == "stopped"
    since = instant(NOW_MS - 179 * SECOND)
    (row,) = judged(tmp_path, NOW_MS, LOOKS, silent, last_stable_offset_since=since).values()
    assert (row["verdict"], row["level"], row["is_stale"], row["as_of"]) == ("blocked", "WARN", False, since)
    assert row["verdict_reason"].startswith("an open transaction blocks the commits of the last 179 s")
    brief = instant(NOW_MS - 5 * SECOND)  # as the offsets of open transactions are
    (row,) = judged(tmp_path, NOW_MS, LOOKS, last_stable_offset_since=brief).values()
    assert row["verdict"] not in ("blocked", "unknown")


def test_a_topic_without_new_samples_makes_only_its_partition_unknown(tmp_path: Path) -> None:
    """The group itself keeps its verdict: it has known trouble elsewhere."""
    fresh, old = window(0), window(1, lag=0)
    rows = tables_of((fresh, old))
    rows["cluster"] = [LOOKS]
    for name in ("offset_commits", "committed_offsets"):
        for each in rows[name]:
            each["group_id"] = "g"
            each["record_offset"] += 1000 * each["partition"]
    rows["offsets_partitions"] = [{"offsets_partition": 0}]
    for each in rows["topic_partitions"]:
        if each["partition"] == 1:
            each["sampled_at"] = instant(NOW_MS - 10 * MINUTE)
    reader = reader_of(write_tables(tmp_path, rows), instant(NOW_MS))
    parts = {row["partition"]: row for row in reader.rows("group_status_partitions")}
    assert (parts[1]["verdict"], parts[1]["verdict_reason"]) == (
        "unknown",
        "its end has been unknown for the last 600 s",
    )
    assert (parts[0]["is_stale"], parts[1]["is_stale"]) == (False, True)
    assert parts[0]["verdict"] != "unknown"
