from datetime import UTC, datetime
from pathlib import Path

import pytest

from offsetstream.cli.age import Age
from offsetstream.tables.path_store import PathStore
from testkit.tables import create_empty_tables
from tests.unit.cli.conftest import Run, write_cluster, write_states


@pytest.mark.parametrize(
    "arguments",
    [
        ["groups", "list"],
        ["groups", "describe", "--all-groups"],
        ["groups", "rebalances"],
        ["lag", "--all-groups"],
        ["offsets", "expiring"],
        ["offsets", "list"],
    ],
)
def test_a_look_up_warns_while_partitions_are_loading(run: Run, tmp_path: Path, arguments: list[str]) -> None:
    create_empty_tables(tmp_path)
    write_cluster(tmp_path)
    write_states(tmp_path, ["OWNED", "LOADING", "FAILED", "UNLOADED", "OWNED"])
    result = run(*arguments, "--output", "json", tables=tmp_path)
    assert result.exit_code == 0
    assert result.stderr.splitlines()[0] == "2 of 5 offsets partitions are loaded"
    assert result.stdout.startswith("[")


def loading_lines(states: dict[int, str | None], *groups: str) -> list[str]:
    age = Age(datetime.now(UTC), {}, None, load_states=states)
    return age.loading_lines(PathStore("none"), groups)


def test_no_warning_when_all_are_loaded() -> None:
    assert loading_lines({0: "OWNED", 1: "OWNED"}) == []


def test_one_partition_is_told_as_one() -> None:
    assert loading_lines({0: "LOADING"}) == ["0 of 1 offsets partition are loaded"]


def test_nothing_is_known_yet() -> None:
    (line,) = loading_lines({}, "g")
    assert line.startswith("No offsets partition is known yet")


def test_the_warning_says_whether_the_partition_of_a_group_is_loaded(run: Run, tmp_path: Path) -> None:
    # reference 7: of 50 partitions, my-group has 12 and testgroup 27
    write_cluster(tmp_path)
    write_states(tmp_path, ["OWNED" if number == 12 else "LOADING" for number in range(50)])
    shown = run("groups", "list", "--group", "my-group", "--group", "testgroup", tables=tmp_path)
    assert shown.stderr.splitlines()[:3] == [
        "1 of 50 offsets partitions is loaded",
        "Offsets partition 12 of group 'my-group' is loaded",
        "Offsets partition 27 of group 'testgroup' is not loaded (LOADING)",
    ]


def test_nothing_is_known_of_tables_that_no_job_has_loaded(run: Run, tmp_path: Path) -> None:
    """`groups status` was green, and `--at` an empty answer."""
    create_empty_tables(tmp_path)
    shown = run("groups", "status", tables=tmp_path)
    assert (shown.exit_code, "No offsets partition is known yet" in shown.stderr) == (5, True)
    for command in (("groups", "list"), ("lag", "--all-groups")):
        past = run(*command, "--at", "1m", tables=tmp_path)
        assert (past.exit_code, past.stdout, "nothing is known at" in past.stderr) == (1, "", True)
