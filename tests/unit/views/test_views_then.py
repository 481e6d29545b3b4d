"""Views as of an instant over the complete history equal the views over tables that end at that instant."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from offsetstream.views.files import all_views, load_view
from offsetstream.views.instant import InstantReader
from testkit.examples import seeds
from testkit.group_world import GroupWorld
from testkit.sampled_logs import MINUTE, SECOND, START_MS, instant
from testkit.tables import new_tables, reader_of, write_tables

SEED, CHANGING = 1, 2
# Leaders are kept only for now: for a past instant the previous end counts.
NO_LOOK, NONE = "NOT_LEADER_OR_FOLLOWER", "no sample"
UNSEEN = re.compile(f"{NO_LOOK}|not sampled after")
SAME = {
    "lag": (
        *(
            "group_id",
            "topic",
            "partition",
            "committed_offset",
            "log_end_offset",
            "lag",
            "messages_lost",
        ),
        *(
            "is_truncated",
            "is_recreated",
            "is_beyond_end",
            "reason",
            "commit_timestamp",
            "member_id",
            "client_id",
            "client_host",
        ),
        "group_state",
    ),
    "time_lag": ("group_id", "topic", "partition", "committed_offset", "log_end_offset", "method"),
    "expiring_offsets": load_view("expiring_offsets").column_names,
    "rebalances": load_view("rebalances").column_names,
}


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return new_tables(tmp_path_factory.mktemp("whole"), GroupWorld(SEED, changing=CHANGING).rows)


@pytest.mark.parametrize("minute", seeds([3, 39], [12, 31]))
@pytest.mark.parametrize("view", SAME)
def test_a_view_at_an_instant_equals_the_view_then(history: Any, tmp_path: Path, view: str, minute: int) -> None:
    at = instant(START_MS + minute * MINUTE)
    world = GroupWorld(SEED, until_minute=minute, changing=CHANGING)
    world.rows.pop("thresholds")
    expected = {place(row): row for row in reader_of(write_tables(tmp_path, world.rows), at).rows(view)}
    reader = InstantReader(history, at)
    found = {place(row): row for row in reader.rows(view)}
    expected = {key: row for key, row in expected.items() if row["group_id"] not in unknown_of(reader)}
    assert found.keys() == expected.keys()
    looked = [
        key for key, row in expected.items() if NO_LOOK not in str(row.get("reason")) and row.get("method") != NONE
    ]
    assert len(looked) > len(found) / 2
    for key in looked:
        assert {name: found[key][name] for name in SAME[view]} == {name: expected[key][name] for name in SAME[view]}


def unknown_of(reader: InstantReader) -> set[str]:
    """Groups whose log was recreated later: the time before is unknown."""
    groups = {row["group_id"] for row in reader.unknown} - {None}
    assert len(groups) <= 2
    return groups


def place(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in ("group_id", "topic", "partition", "epoch", "record_offset"))


@pytest.mark.parametrize("minute", [12, 39])
def test_the_status_at_an_instant_equals_the_status_then(history: Any, tmp_path: Path, minute: int) -> None:
    """Taken just after a sample: an answer is as of the last sample, which a later one may have confirmed."""
    look_ms = START_MS + minute * MINUTE + 3 * SECOND
    at = instant(look_ms + 1)
    world = GroupWorld(SEED, until_minute=(look_ms + 1 - START_MS) / MINUTE, changing=CHANGING)
    world.rows.pop("thresholds")
    now, then = reader_of(write_tables(tmp_path, world.rows), at), InstantReader(history, at)
    parts = [row for each in (now, then) for row in each.rows("group_status_partitions")]
    unlike = {row["group_id"] for row in parts if UNSEEN.search(row["verdict_reason"])} | unknown_of(then)
    found = {row["group_id"]: row for row in then.rows("group_status")}
    compared = [row for row in now.rows("group_status") if row["group_id"] not in unlike]
    assert len(compared) >= 4
    for row in compared:
        assert found[row["group_id"]] | {"as_of": None} == row | {"as_of": None}


def test_views_at_an_instant_can_be_limited_to_some_groups(history: Any) -> None:
    at = instant(START_MS + 20 * MINUTE)
    every = InstantReader(history, at).rows("lag")
    some = InstantReader(history, at, ["group-0"]).rows("lag")
    assert sorted(some, key=place) == sorted((row for row in every if row["group_id"] == "group-0"), key=place)


def test_groups_without_history_at_an_instant_are_reported_unknown(history: Any) -> None:
    reader = InstantReader(history, instant(START_MS - 2 * MINUTE))
    assert reader.rows("lag") == []
    began_anew = instant(START_MS + 40 * MINUTE // 3)
    assert {row["unknown_before"] for row in reader.unknown} == {instant(START_MS - MINUTE), began_anew}
    assert {row["group_id"] for row in reader.unknown} >= {"group-0", None}


def test_every_view_can_be_queried_at_an_instant(history: Any) -> None:
    for view in all_views().values():
        if not view.is_at:
            InstantReader(history, instant(START_MS + 20 * MINUTE)).rows(view.name)
