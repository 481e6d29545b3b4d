"""Groups that changed from the classic protocol to KIP-848 and back: recorded from a broker (4.3.1), and made up.

`python -m tests.kafka.protocol_changes` records `tests/fixtures/protocol_changes.jsonl` again.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from offsetstream.views.files import all_views
from offsetstream.views.reader import ViewReader
from testkit.examples import seeds
from testkit.group_world import GroupWorld
from testkit.sampled_logs import MINUTE, START_MS, instant
from testkit.tables import reader_of, write_tables
from tests.kafka.protocol_changes import history

Row = dict[str, Any]
RECORDED = Path(__file__).parents[2] / "fixtures" / "protocol_changes.jsonl"
# The epochs of each group: type, epoch, members, joined, left, static members that returned, moved partitions.
EXPECTED = {
    "leaves": [
        ("Classic", 2, 2, "a1, b1", None, 0, "+4 -0"),
        ("Consumer", 3, 2, "a2", "a1", 0, "+2 -2"),
        ("Consumer", 4, 1, None, "b1", 0, "+2 -2"),
        ("Consumer", 5, 2, "b2", None, 0, "+2 -2"),
        ("Consumer", 6, 1, None, "a2", 0, "+2 -2"),
        ("Consumer", 7, 2, "a3", None, 0, "+2 -2"),
        ("Classic", 8, 1, None, "b2", 0, "+2 -2"),
        ("Classic", 9, 2, "b3", None, 0, "+2 -2"),
        ("Classic", 10, 0, None, "a3, b3", 0, "+0 -4"),
    ],
    "times-out": [
        ("Classic", 1, 2, "a1, b1", None, 0, "+4 -0"),
        ("Consumer", 2, 2, "a2", "a1", 0, "+2 -2"),
        ("Consumer", 3, 1, None, "b1", 0, "+0 -2"),
        ("Consumer", 4, 2, "b2", None, 0, "+2 -0"),
        ("Consumer", 5, 1, None, "a2", 0, "+2 -2"),
        ("Consumer", 6, 2, "a3", None, 0, "+2 -2"),
        ("Classic", 7, 1, None, "b2", 0, "+2 -2"),
        ("Classic", 8, 0, None, "a3", 0, "+0 -4"),
    ],
    # Each newcomer replaces the previous member, of the other protocol: no rebalance.
    "static": [("Classic", 1, 2, "a, b", None, 4, "+12 -8")],
    "static-times-out": [
        ("Classic", 1, 2, "a, b", None, 3, "+10 -6"),
        ("Classic", 2, 1, None, "b", 0, "+2 -2"),
    ],
    # A group that changes its type while empty counts its epochs from the start.
    "empty-between": [
        ("Classic", 1, 2, "a1, b1", None, 0, "+4 -0"),
        ("Classic", 2, 1, None, "a1", 0, "+2 -2"),
        ("Classic", 3, 0, None, "b1", 0, "+0 -4"),
        ("Consumer", 2, 1, "a2", None, 0, "+4 -0"),
        ("Consumer", 3, 2, "b2", None, 0, "+2 -2"),
        ("Consumer", 4, 1, None, "a2", 0, "+0 -2"),
        ("Consumer", 5, 0, None, "b2", 0, "+0 -2"),
        ("Classic", 1, 1, "a3", None, 0, "+4 -0"),
        ("Classic", 2, 2, "b3", None, 0, "+2 -2"),
        ("Classic", 3, 1, None, "a3", 0, "+2 -2"),
        ("Classic", 4, 0, None, "b3", 0, "+0 -4"),
    ],
}
SIGNED = {"expires_in_ms", "ms_past_due"}  # until an instant, possibly past
UNITS = ("_ms", "_seconds", "milliseconds")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> ViewReader:
    rows = history(RECORDED.read_text("utf-8").splitlines())
    last = max(row["record_timestamp"] for of_table in rows.values() for row in of_table)
    return reader_of(write_tables(tmp_path_factory.mktemp("recorded"), rows), last + timedelta(seconds=1))


@pytest.fixture(scope="module", params=seeds([1, 2], range(3, 7)))
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ViewReader:
    made = GroupWorld(request.param, groups=8, minutes=30, changing=6)
    return reader_of(write_tables(tmp_path_factory.mktemp("world"), made.rows), instant(made.now_ms))


def rebalances(reader: ViewReader) -> dict[str, list[Row]]:
    rows = sorted(reader.rows("rebalances"), key=lambda row: (row["group_id"], row["log_id"], row["record_offset"]))
    return {group: list(own) for group, own in groupby(rows, lambda row: row["group_id"])}


@pytest.mark.parametrize("group", EXPECTED)
def test_a_rebalance_shows_the_members_whose_change_started_it(recorded: ViewReader, group: str) -> None:
    names = ("group_type", "epoch", "member_count", "joined_clients", "left_clients", "static_returns")
    found = [
        (*(row[name] for name in names), f"+{row['partitions_assigned']} -{row['partitions_revoked']}")
        for row in rebalances(recorded)[group]
    ]
    assert found == EXPECTED[group]


@pytest.mark.parametrize("group", ["leaves", "times-out", "static-times-out"])
def test_the_last_member_of_the_newer_protocol_leaves_at_the_right_time(recorded: ViewReader, group: str) -> None:
    """Ten seconds after its last epoch had started. The rebalance that follows ends at once."""
    rows = rebalances(recorded)[group]
    (at,) = (at for at, row in enumerate(rows) if row["left_clients"] in ("b2", "b") and row["group_type"] == "Classic")
    assert rows[at]["started_at"] - rows[at - 1]["started_at"] > timedelta(seconds=10)
    assert 0 <= rows[at]["sync_ms"] < 1000


def negative(reader: ViewReader) -> Iterator[tuple[str, str, Row]]:
    """Yield view, column and row of each negative duration in every view."""
    for view in all_views().values():
        names = [name for name in view.column_names if name.endswith(UNITS) and name not in SIGNED]
        for row in reader.rows(view.name) if names and not view.is_at else ():
            yield from ((view.name, name, row) for name in names if row[name] is not None and row[name] < 0)


def test_no_duration_is_negative(recorded: ViewReader, world: ViewReader) -> None:
    assert [*negative(recorded), *negative(world)] == []


def test_no_duration_is_negative_for_a_reader_whose_clock_is_behind(tmp_path: Path) -> None:
    """The reader's clock is minutes behind."""
    made = GroupWorld(1, groups=8, minutes=16, changing=2)
    reader = reader_of(write_tables(tmp_path, made.rows), instant(made.now_ms - 7 * MINUTE))
    assert [*negative(reader)] == []


def test_every_duration_is_known(recorded: ViewReader, world: ViewReader) -> None:
    """If clocks agree, no duration is null because it would be negative."""
    for row in (*recorded.rows("rebalances"), *world.rows("rebalances")):
        assert (row["sync_ms"] is None) is (row["group_type"] != "Classic"), row
        if row["group_type"] != "Classic" and row["state"] in ("Stable", "Empty"):
            assert row["settle_ms"] is not None, row


def test_members_are_the_previous_ones_plus_joined_minus_left(recorded: ViewReader, world: ViewReader) -> None:
    changing = {f"group-{number}" for number in range(8, 14)}
    for group, rows in (rebalances(recorded) | rebalances(world)).items():
        before = 0
        for row in rows if group in EXPECTED.keys() | changing else ():
            starts_anew = row["epochs_without_record"] is None
            before = (0 if starts_anew else before) + row["members_joined"] - row["members_left"]
            assert row["member_count"] == before, (group, row)
            assert starts_anew or row["epochs_without_record"] >= 0, row


def test_clocks_that_differ_give_no_duration(tmp_path: Path) -> None:
    """The coordinator moved to a broker whose clock is ten seconds behind."""

    def row(offset: int, seconds: int, **told: object) -> Row:
        place = {"offsets_partition": 1, "log_id": 0, "group_id": "billing", "record_offset": offset}
        return place | {"record_timestamp": instant(START_MS + seconds * 1000)} | told

    def epoch(offset: int, seconds: int, state: str) -> Row:
        told = {"group_type": "Consumer", "group_epoch": 4, "member_count": 1, "is_removed": False}
        return row(offset, seconds, state=state, **told)

    committed = {"topic": "orders", "partition": 0, "committed_offset": 1, "is_tombstone": False}
    rows = {
        "group_history": [epoch(1, 10, "Reconciling"), epoch(2, 1, "Stable")],
        "offset_commits": [row(0, 9, **committed), row(3, 2, **committed)],
    }
    (found,) = reader_of(write_tables(tmp_path, rows), instant(START_MS)).rows("rebalances")
    assert (found["settle_ms"], found["commit_pause_ms"], found["is_superseded"]) == (None, None, False)
