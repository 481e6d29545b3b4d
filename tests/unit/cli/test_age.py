"""The line before an answer that is not of now."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from offsetstream.cli.age import Age
from offsetstream.tables.path_store import PathStore
from testkit.tables import append_rows, new_tables
from tests.unit.cli.conftest import Run, group

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
AN_HOUR: tuple[datetime | None, bool] = (NOW - timedelta(hours=1), True)
FRESH: tuple[datetime | None, bool] = (NOW, False)
NEVER: tuple[datetime | None, bool] = (None, True)

LINES: dict[str, tuple[list[tuple[datetime | None, bool]], set[int] | None, list[str]]] = {
    "all is fresh": ([FRESH, FRESH], None, []),
    "all is stale": (
        [AN_HOUR, AN_HOUR],
        None,
        ["STALE: nothing is known of the last 1 h, since 2026-01-01T11:00:00.000Z: is the job running?"],
    ),
    "some are stale": (
        [FRESH, AN_HOUR, FRESH],
        None,
        [
            "STALE: of 1 of 3 offsets partitions nothing is known of the last 1 h, since 2026-01-01T11:00:00.000Z: "
            "'offsetstream partitions' shows which"
        ],
    ),
    "but not those that are asked for": ([FRESH, AN_HOUR, FRESH], {0, 2}, []),
    "some were never loaded": ([FRESH, NEVER], None, ["STALE: of 1 of 2 offsets partitions nothing is known yet"]),
}


@pytest.mark.parametrize("name", LINES)
def test_what_is_stale_is_told(name: str) -> None:
    known, asked, lines = LINES[name]
    assert Age(NOW, dict(enumerate(known)), None).lines(asked) == lines


def test_a_period_that_ends_before_nothing_is_known_is_not_stale() -> None:
    """As the instant of its end is not: it may be as long after the last look as now may."""
    age = Age(NOW, {0: AN_HOUR}, None, max_age=120)
    last_look = NOW - timedelta(hours=1)
    for seconds, is_stale in ((-1, False), (119, False), (121, True)):
        told = age.until(last_look + timedelta(seconds=seconds)).lines()
        assert told == (age.lines() if is_stale else [])
    assert age.until(None) == age
    assert Age(NOW, {0: NEVER}, None, max_age=120).until(last_look).lines() == ["STALE: nothing is known yet"]


def test_what_a_transaction_holds_back_is_told() -> None:
    """Of a group that was reset behind it `offsets audit` said that nobody had moved an offset."""
    since = NOW - timedelta(minutes=5)
    age = Age(NOW, {0: FRESH, 1: FRESH}, None, blocked_since={1: since})
    told = (
        "BLOCKED: of 1 of 2 offsets partitions nothing is known since 2026-01-01T11:55:00.000Z: "
        "an open transaction is there, and nobody can read what came after"
    )
    assert (age.lines(), age.lines({0})) == ([told], [])
    assert age.until(since).lines() == []


@pytest.mark.parametrize(
    ("complete_from", "since", "lines"),
    [
        ([NOW, NOW], None, []),
        ([NOW, NOW], NOW, []),
        (
            [NOW, NOW - timedelta(hours=2)],
            NOW - timedelta(hours=1),
            [
                "Of 1 of 2 offsets partitions the history is complete from 2026-01-01T12:00:00.000Z on: "
                "more may have happened before"
            ],
        ),
        (
            [None, None],
            NOW,
            ["Of 2 of 2 offsets partitions no history is known to be complete: more may have happened than is told"],
        ),
    ],
)
def test_from_when_on_the_history_is_known(
    tmp_path: Path, complete_from: list[datetime | None], since: datetime | None, lines: list[str]
) -> None:
    age = Age(NOW, {0: FRESH, 1: FRESH}, None, complete_from=dict(enumerate(complete_from)))
    assert age.lines_of_groups(PathStore(str(tmp_path)), (), since) == lines


def test_a_case_says_when_it_ends() -> None:
    told = "No job keeps these tables any more: their now is 2026-01-01T12:00:00.000Z, when they end"
    assert Age(NOW, {0: AN_HOUR}, NOW).lines() == [told]


def test_a_clock_that_is_behind_is_told() -> None:
    ahead = datetime.now(UTC) + timedelta(minutes=10)
    (line,) = Age(datetime.now(UTC), {0: (ahead, False)}, None).lines()
    assert line.startswith("This machine's clock is ")
    assert line.endswith(" behind that of the job: all ages are too low by that")


def test_without_a_table_the_age_is_unknown_and_the_answer_is_there(run: Run, tmp_path: Path) -> None:
    new_tables(tmp_path, {"groups": [group("billing", "Consumer", "Stable", 1)]})
    shutil.rmtree(tmp_path / "cluster")
    shown = run("groups", "list", "--output", "json", tables=tmp_path)
    assert "How old this is nobody can tell: there is no table" in shown.stderr
    (row,) = json.loads(shown.stdout)
    assert (shown.exit_code, row["group"], row["stale"]) == (0, "billing", None)


def test_on_a_terminal_it_is_red(run: Run, tmp_path: Path) -> None:
    new_tables(tmp_path)
    old = {"offsets_partition": 0, "caught_up_at": NOW}
    append_rows(tmp_path, "offsets_partitions", [old])
    assert "\x1b[31mSTALE: " in run("groups", "list", tables=tmp_path, color=True).stderr


def test_the_end_of_a_case_may_be_tried(run: Run, tmp_path: Path) -> None:
    new_tables(tmp_path, {"offsets_partitions": [{"offsets_partition": 0, "caught_up_at": NOW}]})
    for flags, ends in ((["--dry-run"], "would end"), ([], "end")):
        done = run("maintain", "--end", *flags, tables=tmp_path)
        assert done.stderr.startswith(
            f"These tables {ends} at 2026-01-01T12:00:00.000Z, Commands take that time as now"
        ), done.stderr
        told = "No job keeps these tables any more" in run("groups", "list", tables=tmp_path).stderr
        assert told == (ends == "end")
