import json
from pathlib import Path
from typing import Any

from offsetstream.coordinator.partitioning import partition_for
from testkit.tables import append_rows
from tests.unit.cli.conftest import PARTITIONS, Run

OWNED = {"load_state": "OWNED", "coordinator_id": 2, "coordinator_epoch": 7, "coordinator_available": True}


def write_partitions(root: Path, **of_my_group: Any) -> None:
    own = partition_for("my-group", PARTITIONS)
    rows = [{"offsets_partition": number} | OWNED for number in range(PARTITIONS)]
    rows[own] |= of_my_group
    append_rows(root, "offsets_partitions", rows)


def test_from_the_tables(run: Run, tmp_path: Path) -> None:
    write_partitions(tmp_path, coordinator_id=3, coordinator_epoch=8)
    result = run("coordinator", "--group", "testgroup", "--group", "my-group", tables=tmp_path)
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.split() for line in result.stdout.splitlines()[1:]] == [
        ["testgroup", "27", "(2)", "7", "true", "OWNED"],
        ["my-group", "12", "(3)", "8", "true", "OWNED"],
    ]
    (row,) = json.loads(run("coordinator", "--group", "my-group", "--output", "json", tables=tmp_path).stdout)
    assert (row.pop("as_of") > "2026", row.pop("stale")) == (True, False)
    assert row == {
        "group": "my-group",
        "offsets_partition": 12,
        "coordinator": "(3)",
        "coordinator_id": 3,
        "coordinator_epoch": 8,
        "coordinator_available": True,
        "load_state": "OWNED",
    }


def test_a_partition_without_a_leader(run: Run, tmp_path: Path) -> None:
    write_partitions(tmp_path, coordinator_id=None, coordinator_available=False)
    result = run("coordinator", "--group", "my-group", "--group", "testgroup", tables=tmp_path)
    assert result.exit_code == 1
    assert result.stderr == ("Error: offsets partition 12 of group 'my-group' has no coordinator in the tables.\n")


def test_nothing_is_known_yet(run: Run, tmp_path: Path) -> None:
    append_rows(tmp_path, "offsets_partitions", [])
    result = run("coordinator", "--group", "g", tables=tmp_path)
    assert result.exit_code == 1
    assert "No offsets partition is known yet" in result.stderr


def test_a_group_must_be_named(run: Run) -> None:
    assert run("coordinator").exit_code == 2
