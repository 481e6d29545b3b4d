"""The age of an answer: warnings before it, and the closing line."""

from __future__ import annotations

import json
import re
import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from offsetstream.cli.age import Age
from offsetstream.cli.answers import ends_text
from offsetstream.cli.text import instant_text
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.tables.path_store import PathStore
from testkit.tables import append_rows, new_tables
from tests.unit.cli.conftest import Run, group

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "ask.md"
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
            "STALE: nothing is known of the last 1 h, since 2026-01-01T11:00:00.000Z, of 1 of 3 offsets partitions: "
            "'offsetstream partitions' shows which"
        ],
    ),
    "but not those that are asked for": ([FRESH, AN_HOUR, FRESH], {0, 2}, []),
    "some were never loaded": ([FRESH, NEVER], None, ["STALE: nothing is known yet of 1 of 2 offsets partitions"]),
}


@pytest.mark.parametrize("name", LINES)
def test_a_warning_names_what_is_stale(name: str) -> None:
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


def test_a_warning_names_partitions_that_a_transaction_blocks() -> None:
    """Of a group that was reset behind it `offsets audit` said that nobody had moved an offset."""
    since = NOW - timedelta(minutes=5)
    age = Age(NOW, {0: FRESH, 1: FRESH}, None, blocked_since={1: since})
    (line,) = age.lines()
    assert "an open transaction blocks 1 of 2 offsets partitions since 2026-01-01T11:55:00.000Z" in line
    assert age.lines({0}) == []
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
                "The history of 1 of 2 offsets partitions is complete only from 2026-01-01T12:00:00.000Z on: "
                "more may have happened before"
            ],
        ),
        (
            [NOW],
            NOW - timedelta(hours=1),
            [
                "The history of 1 of 1 offsets partition is complete only from 2026-01-01T12:00:00.000Z on: "
                "more may have happened before"
            ],
        ),
        (
            [None, None],
            NOW,
            [
                "The history of 2 of 2 offsets partitions may be incomplete: "
                "more may have happened than this answer shows"
            ],
        ),
    ],
)
def test_a_warning_names_the_start_of_the_complete_history(
    tmp_path: Path, complete_from: list[datetime | None], since: datetime | None, lines: list[str]
) -> None:
    age = Age(NOW, {0: FRESH, 1: FRESH}, None, complete_from=dict(enumerate(complete_from)))
    assert age.warnings_for_groups(PathStore(str(tmp_path)), (), since) == lines


def test_tables_without_a_job_say_when_they_end() -> None:
    (line,) = Age(NOW, {0: AN_HOUR}, NOW).lines()
    assert line.startswith("No job updates these tables any more: they end at 2026-01-01T12:00:00.000Z")


def test_a_period_after_the_end_of_the_tables_is_no_quiet_period(tmp_path: Path) -> None:
    """Twenty minutes after the demo `--since 10m` found nothing, and did not say why."""
    age, tables = Age(NOW, {0: AN_HOUR}, NOW), PathStore(str(tmp_path))
    _, line = age.warnings_for_groups(tables, (), NOW + timedelta(minutes=10))
    assert "begins after their end" in line
    assert "--since 2026-01-01T11:00:00.000Z" in line
    assert len(age.warnings_for_groups(tables, (), NOW - timedelta(minutes=10))) == 1


def test_a_warning_names_a_clock_that_is_behind() -> None:
    ahead = datetime.now(UTC) + timedelta(minutes=10)
    (line,) = Age(datetime.now(UTC), {0: (ahead, False)}, None).lines()
    assert line.startswith("This machine's clock is ")
    assert line.endswith(" behind the job's clock: all ages are too low by that")


def test_an_answer_without_the_cluster_table_says_that_its_age_is_unknown(run: Run, tmp_path: Path) -> None:
    new_tables(tmp_path, {"groups": [group("billing", "Consumer", "Stable", 1)]})
    shutil.rmtree(tmp_path / "cluster")
    shown = run("groups", "list", "--output", "json", tables=tmp_path)
    assert "The age of the data is unknown: there is no table" in shown.stderr
    (row,) = json.loads(shown.stdout)
    assert (shown.exit_code, row["group"], row["stale"]) == (0, "billing", None)


def test_the_guide_shows_the_age_of_end_offsets_as_answers_print_it() -> None:
    printed = re.sub(r"as of \S+", "as of …", ends_text([NOW], NOW + timedelta(seconds=4)))
    assert printed == "end offsets as of … (4.0 s old)"
    assert GUIDE.read_text("utf-8").count(printed) == 2


def test_warnings_are_red_on_a_terminal(run: Run, tmp_path: Path) -> None:
    new_tables(tmp_path)
    old = {"offsets_partition": 0, "caught_up_at": NOW}
    append_rows(tmp_path, "offsets_partitions", [old])
    assert "\x1b[31mSTALE: " in run("groups", "list", tables=tmp_path, color=True).stderr


def test_maintain_end_has_a_dry_run(run: Run, tmp_path: Path) -> None:
    new_tables(tmp_path, {"offsets_partitions": [{"offsets_partition": 0, "caught_up_at": NOW}]})
    for flags, ends in ((["--dry-run"], "would end"), ([], "end")):
        done = run("maintain", "--end", *flags, tables=tmp_path)
        assert done.stderr.startswith(f"These tables {ends} at 2026-01-01T12:00:00.000Z"), done.stderr
        told = "No job updates these tables any more" in run("groups", "list", tables=tmp_path).stderr
        assert told == (ends == "end")


ANSWERS = (
    ("groups", "list"),
    ("groups", "describe", "--all-groups"),
    ("groups", "describe", "--all-groups", "--members"),
    ("groups", "describe", "--all-groups", "--state"),
    ("groups", "status"),
    ("groups", "history"),
    ("groups", "rebalances"),
    ("coordinator", "--group", "billing"),
    ("lag", "--all-groups"),
    ("offsets", "list"),
    ("offsets", "history"),
    ("offsets", "audit"),
    ("offsets", "audit", "--group", "billing"),
    ("offsets", "expiring"),
    ("offsets", "orphans"),
    ("offsets", "export", "--all-groups"),
)

# As Kafka's own tool, these print nothing but the table while the data are fresh.
KAFKAS_LAYOUT = [
    each for each in ANSWERS if each[:2] in {("groups", "list"), ("groups", "describe"), ("offsets", "list")}
] + [("coordinator", "--group", "billing")]


def _known_until(root: Path, *, seconds_ago: int, partitions: int = 1) -> str:
    """Make tables of a job that checks each 10 s and knew the last of its partitions so long ago; return when."""
    now = datetime.now(UTC)
    known = now - timedelta(seconds=seconds_ago)
    times = [now] * (partitions - 1) + [known]
    new_tables(
        root,
        {
            "cluster": [{"cluster_id": "c", "sample_interval_ms": 10_000, "observed_at": now}],
            "groups": [
                group(name, "Consumer", "Stable", 1, offsets_partition=partition_for(name, partitions))
                for name in ("billing", "a", "b")
            ],
            "offsets_partitions": [
                {"offsets_partition": number, "caught_up_at": at, "load_state": "OWNED"}
                for number, at in enumerate(times)
            ],
        },
    )
    return str(instant_text(known))


@pytest.mark.parametrize("command", ANSWERS, ids=" ".join)
def test_each_answer_says_how_old_its_data_are(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    """`offsets audit` denied a reset of 33 s before "as of now": the job had not applied it yet."""
    began = time.monotonic()
    known = _known_until(tmp_path, seconds_ago=33)
    shown = run(*command, tables=tmp_path)
    passed = time.monotonic() - began
    last = (shown.stderr if "export" in command else shown.stdout).splitlines()[-1]
    age = re.search(rf"[Dd]ata as of {known} \((\d+) s old", last)
    assert age is not None, shown.output
    assert 33 <= int(age[1]) <= 33 + passed + 1


@pytest.mark.parametrize("command", ANSWERS, ids=" ".join)
def test_an_answer_from_fresh_data_is_short(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    known = _known_until(tmp_path, seconds_ago=0)
    shown = run(*command, tables=tmp_path)
    assert "old)" not in shown.output
    if command not in KAFKAS_LAYOUT:
        last = (shown.stderr if "export" in command else shown.stdout).splitlines()[-1]
        assert f"as of {known}" in last, shown.output


def test_a_period_says_where_it_reaches_beyond_the_data(run: Run, tmp_path: Path) -> None:
    known = _known_until(tmp_path, seconds_ago=600)
    hour, five, twenty = (str(instant_text(datetime.now(UTC) - timedelta(minutes=minutes))) for minutes in (60, 5, 20))
    for command in (("offsets", "audit"), ("offsets", "history"), ("groups", "history"), ("groups", "rebalances")):
        beyond = run(*command, "--since", hour, "--until", five, tables=tmp_path).stdout.splitlines()[-1]
        assert re.search(rf"data as of {known} \(\d min( \d+ s)? before the end of the period", beyond)
        assert "later changes are not included" in beyond
        assert "as of" not in run(*command, "--since", hour, "--until", twenty, tables=tmp_path).stdout


def test_the_oldest_of_the_partitions_that_were_asked_counts(run: Run, tmp_path: Path) -> None:
    """Kafka's hash puts `a` into partition 1 of 2 and `b` into 0."""
    known = _known_until(tmp_path, seconds_ago=33, partitions=2)
    of_all = run("offsets", "audit", tables=tmp_path).stdout
    of_old = run("offsets", "audit", "--group", "a", tables=tmp_path).stdout
    of_fresh = run("offsets", "audit", "--group", "b", tables=tmp_path).stdout
    assert f"data as of {known}" in of_all
    assert (f"data as of {known}" in of_old, "data as of" in of_fresh) == (True, False)


def test_a_partition_that_was_never_read_is_named_with_the_age() -> None:
    text = Age(NOW, {0: FRESH, 1: NEVER}, None).as_of_text(PathStore("none"))
    assert text == "as of 2026-01-01T12:00:00.000Z, but 1 of 2 offsets partitions was never read"
    assert Age(NOW, {0: NEVER}, None).as_of_text(PathStore("none")) == "no offsets partition was read yet"
    assert Age(NOW, {}, None).as_of_text(PathStore("none")) == "data age unknown"
