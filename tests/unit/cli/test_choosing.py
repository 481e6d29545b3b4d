"""Which rows an answer shows, and in which order: patterns, --sort, --limit, and filters of rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from offsetstream.cli.main import main
from testkit.tables import append_rows, new_tables
from tests.unit.cli.conftest import PARTITIONS, Run, commit, group, write_states

END = ("--at", "2026-01-05T10:40Z")
LOOK_UPS = (
    ("groups", "status"),
    ("groups", "describe"),
    ("groups", "rebalances", "--since", "2026-01-05"),
    ("groups", "history", "--since", "2026-01-05"),
    ("lag",),
    ("offsets", "list"),
    ("offsets", "history"),
    ("offsets", "audit"),
    ("coordinator",),
)


def rows_of(run: Run, tables: Path, *command: str) -> list[dict[str, Any]]:
    shown = run(*command, "--output", "json", tables=tables)
    assert shown.exit_code in {0, 1, 4, 5}, shown.output
    found: list[dict[str, Any]] = json.loads(shown.stdout)
    return found


@pytest.mark.parametrize("command", LOOK_UPS, ids=" ".join)
def test_a_pattern_stands_for_the_ids_that_it_matches(run: Run, world: Path, command: tuple[str, ...]) -> None:
    by_pattern = {row["group"] for row in rows_of(run, world, *command, "--group", "group-1?")}
    by_id = {row["group"] for row in rows_of(run, world, *command, "--group", "group-10", "--group", "group-11")}
    assert by_pattern == by_id
    assert by_id <= {"group-10", "group-11"}


@pytest.mark.parametrize("command", LOOK_UPS, ids=" ".join)
def test_a_pattern_that_matches_nothing_is_reported(run: Run, world: Path, command: tuple[str, ...]) -> None:
    shown = run(*command, "--group", "team-*", tables=world)
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert shown.stderr.endswith("Error: no group has the id 'team-*' or matches it as a pattern\n")
    assert run(*command, "--group", "team-*", "--output", "json", tables=world).stdout == "[]\n"
    both = ("--group", "team-*", "--group", "group-9")
    assert {row["group"] for row in json.loads(run(*command, *both, "--output", "json", tables=world).stdout)} <= {
        "group-9"
    }


@pytest.mark.parametrize(
    "command",
    [("offsets", "list"), ("offsets", "export"), ("groups", "describe", "--at", "2026-01-05T10:20"), ("lag",)],
    ids=" ".join,
)
def test_groups_of_a_pattern_may_have_nothing_to_show(run: Run, world: Path, command: tuple[str, ...]) -> None:
    """group-1 is a share group, and group-11 came later: only an id that the user gave must be there."""
    shown = run(*command, "--group", "group-1*", "--max-age", "none", tables=world)
    assert (shown.exit_code, "Error" in shown.output) == (0, False), shown.output


def test_a_topic_can_be_a_pattern(run: Run, world: Path) -> None:
    topics = {
        row["topic"] for row in rows_of(run, world, "lag", "--all-groups", "--topic", "o*", "--topic", "stock", *END)
    }
    assert topics == {"orders", "stock"}
    assert run("offsets", "orphans", "--topic", "x*", tables=world).exit_code == 1


def test_an_exact_id_wins_over_a_pattern(run: Run, tmp_path: Path) -> None:
    new_tables(tmp_path)
    write_states(tmp_path, ["OWNED"] * PARTITIONS)
    ids = ["team-*", "team-a", "[x]", "x"]
    append_rows(tmp_path, "groups", [group(each, "Classic", "Empty", 0) for each in ids])
    append_rows(tmp_path, "committed_offsets", [commit(each, "t", 0, 5) for each in ids])

    def found(*wanted: str) -> list[str]:
        groups = [word for each in wanted for word in ("--group", each)]
        return [row["group"] for row in rows_of(run, tmp_path, "offsets", "list", *groups)]

    assert found("team-*") == ["team-*"]
    assert found("team-?*") == ["team-*", "team-a"]
    assert found("[x]") == ["[x]"]
    assert found("[xy]", "team-a") == ["team-a", "x"]


@pytest.mark.parametrize("command", [("groups", "delete"), ("offsets", "reset", "--to-earliest")], ids=" ".join)
def test_commands_that_change_something_take_no_pattern(run: Run, world: Path, command: tuple[str, ...]) -> None:
    """Their --group is an id. Without a cluster they end before they look for it."""
    help_text = run(*command[:2], "--help", tables=world).stdout
    assert "team-a-*" not in help_text


@pytest.mark.parametrize(
    ("by", "wanted"),
    [("total_lag", False), ("TOTAL-LAG:desc", True), ("total-lag:asc", False), ("time_lag:desc", True)],
)
def test_rows_are_sorted_by_any_column(run: Run, world: Path, by: str, wanted: bool) -> None:
    """By its heading or its name; durations by their length, and rows without a value last."""
    key = "time_lag_seconds" if by.startswith("time") else "total_lag"
    values = [row[key] for row in rows_of(run, world, "groups", "status", *END, "--sort", by)]
    known = [each for each in values if each is not None]
    assert len(known) < len(values)
    assert values == [*sorted(known, reverse=wanted), *[None] * (len(values) - len(known))]


def test_an_unknown_column_is_refused_with_those_that_are_there(run: Run, world: Path) -> None:
    shown = run("groups", "status", *END, "--sort", "size", tables=world)
    assert shown.exit_code == 2
    assert "--sort size: give COLUMN or COLUMN:desc, with one of group, state, " in shown.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("groups", "list"),
        ("groups", "describe", "--all-groups"),
        ("offsets", "list"),
        ("lag", "--all-groups"),
        ("partitions",),
    ],
    ids=" ".join,
)
def test_a_limit_leaves_out_rows_and_says_so(run: Run, world: Path, command: tuple[str, ...]) -> None:
    every = rows_of(run, world, *command)
    assert rows_of(run, world, *command, "--limit", "2") == every[:2]
    shown = run(*command, "--limit", "2", tables=world).stdout.splitlines()
    assert "--limit leaves out " in shown[-1]
    assert len(shown) in {4, 5}  # heading, two rows, perhaps a closing sentence, and this


def test_an_answer_is_never_repeated_without_a_pause(run: Run, world: Path) -> None:
    shown = run("lag", "--all-groups", "--watch", "0", tables=world)
    assert (shown.exit_code, "give more than 0 seconds" in shown.stderr) == (2, True)


def test_text_of_lag_has_the_worst_first(run: Run, world: Path) -> None:
    rows = rows_of(run, world, "lag", "--all-groups", *END)
    shown = run("lag", "--all-groups", *END, tables=world).stdout.splitlines()[1:-1]
    lags = [int(line.split()[5]) for line in shown if line.split()[5].isdecimal()]
    assert lags == sorted((row["lag"] for row in rows if row["lag"] is not None), reverse=True)
    assert [(row["group"], row["topic"], row["partition"]) for row in rows] == sorted(
        (row["group"], row["topic"], row["partition"]) for row in rows
    )


def test_rows_can_be_chosen_by_trouble(run: Run, world: Path) -> None:
    every = rows_of(run, world, "groups", "status", *END)
    not_ok = rows_of(run, world, "groups", "status", *END, "--not-ok")
    assert not_ok == [row for row in every if row["level"] in {"WARN", "ERR"}]
    late = rows_of(run, world, "groups", "status", *END, "--min-time-lag", "10m", "--min-lag", "1000")
    assert {row["group"] for row in late} == {"group-3", "group-9"}
    in_trouble = {row["group"] for row in rows_of(run, world, "lag", "--all-groups", "--not-ok", *END)}
    assert in_trouble == {row["group"] for row in not_ok}
    assert run("groups", "status", *END, "--min-lag", "999999999", tables=world).exit_code == 0


@pytest.mark.parametrize(
    ("by", "names"), [("group", ["group"]), ("topic", ["topic"]), ("member", ["group", "consumer_id"])]
)
def test_lag_is_summed_up(run: Run, world: Path, by: str, names: list[str]) -> None:
    parts = rows_of(run, world, "lag", "--all-groups", "--time", *END)
    sums = rows_of(run, world, "lag", "--all-groups", "--time", "--by", by, *END)
    assert len(sums) == len({tuple(row[name] for name in names) for row in parts}) < len(parts)
    for row in sums:
        alike = [each for each in parts if all(each[name] == row[name] for name in names)]
        known = [each["lag"] for each in alike if each["lag"] is not None]
        waits = [each["time_lag_seconds"] for each in alike if each["time_lag_seconds"] is not None]
        assert row["partitions"] == len(alike)
        assert row["lag"] == (sum(known) if known else None)
        assert row["time_lag_seconds"] == max(waits, default=None)
    lags = [-1 if row["lag"] is None else row["lag"] for row in sums]
    assert lags == sorted(lags, reverse=True)


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        (["groups", "status", "--group", "group-1"], ["group-1", "group-10", "group-11"]),
        (["lag", "--topic", "o"], ["orders"]),
        (["offsets", "orphans", "--sort", "topic_"], ["topic_deleted_at", "topic_id"]),
        (["lag", "--sort", "time"], ["time_lag", "time_lag_seconds", "time_lag_method"]),
    ],
)
def test_a_shell_completes_ids_and_columns(world: Path, typed: list[str], completed: list[str]) -> None:
    words = " ".join(["offsetstream", *typed])
    asked = {"_OFFSETSTREAM_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(typed))}
    for tables, expected in ((str(world), completed), ("/nowhere", completed if "--sort" in typed else [])):
        environment = {**asked, "OFFSETSTREAM_TABLES": tables}
        result = CliRunner().invoke(main, [], prog_name="offsetstream", env=environment)
        assert [line.partition(",")[2] for line in result.output.splitlines() if line] == expected
