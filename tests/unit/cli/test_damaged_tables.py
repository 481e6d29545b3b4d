"""What the answering commands say of tables that cannot be read, and of periods that are none: one line."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import offsetstream
from offsetstream.errors import TablesError
from testkit.tables import append_rows, new_tables
from tests.unit.cli.conftest import Run, commit

COMMANDS = (
    ("groups", "status"),
    ("lag", "--all-groups", "--time"),
    ("sql", "FROM group_status"),
    ("sql", "FROM offset_commits"),
    ("offsets", "history"),
    ("offsets", "audit"),
)


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    new_tables(tmp_path)
    append_rows(tmp_path, "offset_commits", [commit("app", "t", 0, 100)])
    loaded = {"offsets_partition": 0, "load_state": "OWNED", "caught_up_at": datetime.now(UTC)}
    append_rows(tmp_path, "offsets_partitions", [loaded])
    return tmp_path


def parquet_of(tables: Path) -> Path:
    (file,) = (tables / "offset_commits").rglob("*.parquet")
    return file


def parquet_of_log(tables: Path) -> str:
    (path,) = pa.table(DeltaTable(tables / "offset_commits").get_add_actions())["path"].to_pylist()
    return str(path)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("is_there", [True, False])
def test_a_file_that_cannot_be_read(run: Run, tables: Path, command: tuple[str, ...], is_there: bool) -> None:
    if is_there:
        parquet_of(tables).write_bytes(b"no Parquet")
    else:
        parquet_of(tables).unlink()
    done = run(*command, tables=tables)
    assert (done.exit_code, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Error: the table {tables}/offset_commits is damaged: {parquet_of_log(tables)} ")
    assert line.endswith(f". See what is lost with 'offsetstream repair --tables {tables}'")


def test_python_raises_the_same_error(tables: Path) -> None:
    parquet_of(tables).unlink()
    with pytest.raises(TablesError, match=r"/offset_commits is damaged: .* is missing"):
        offsetstream.open_tables(str(tables)).view("group_status")


@pytest.mark.parametrize("command", COMMANDS[:3])
@pytest.mark.parametrize(("value", "exit_code"), [("many", 1), (2_000_000, 0), (20.5, 0)])
def test_thresholds_of_the_user(
    run: Run, tables: Path, command: tuple[str, ...], value: object, exit_code: int
) -> None:
    write_deltalake(tables / "thresholds", pa.table({"group_id": ["app"], "intervals": [value]}))
    done = run(*command, tables=tables)
    assert done.exit_code == exit_code
    assert len(done.stderr.splitlines()) <= 1
    told = "the column intervals of the table thresholds is a VARCHAR: make it INT"
    assert told in done.stderr or exit_code == 0


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (
            {"group_id": ["app"], "allowed_lagg": [1]},
            "column allowed_lagg, which nothing reads: name it allowed_lag",
        ),
        ({"group": ["app"], "allowed_lag": [1]}, "column group, which nothing reads: name it group_id"),
        ({"allowed_lag": [1]}, "has no column group_id"),
        ({"group_id": ["app"], "allowed_lag": [1], "team": ["a"]}, ""),
    ],
)
def test_a_mistake_in_the_users_thresholds_is_told(
    run: Run, tables: Path, columns: dict[str, list[object]], told: str
) -> None:
    write_deltalake(tables / "thresholds", pa.table(columns))
    done = run("groups", "status", tables=tables)
    assert done.exit_code == (1 if told else 0)
    assert told in done.stderr


@pytest.mark.parametrize(
    "period",
    [
        ("--since", "1h", "--until", "2h"),
        ("--since", "2026-01-05", "--until", "2026-01-05"),  # the end is not part of a period
        ("--since", "2999-01-01"),
    ],
)
@pytest.mark.parametrize("command", ["groups rebalances", "groups history", "offsets history", "offsets audit"])
def test_an_empty_period_is_refused(run: Run, tables: Path, command: str, period: tuple[str, ...]) -> None:
    done = run(*command.split(), *period, tables=tables)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "give an earlier --since" in done.stderr
