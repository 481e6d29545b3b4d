"""Group ids, client ids, topics and metadata that nobody would choose, in everything that commands print."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from testkit.page import IDS
from testkit.processes import offsetstream
from testkit.tables import append_rows, create_empty_tables
from tests.unit.cli.conftest import PARTITIONS, Run, assigned, commit, group, member, write_states

VIEWS: tuple[tuple[str, ...], ...] = (
    ("groups", "list"),
    ("offsets", "list"),
    ("groups", "describe", "--all-groups"),
    ("groups", "describe", "--all-groups", "--members", "--verbose"),
    ("groups", "describe", "--all-groups", "--state"),
)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every id as a group with a member, and as whatever else of it a client may name; half of them rebalance."""
    root = tmp_path_factory.mktemp("hostile")
    create_empty_tables(root)
    states = dict(zip(IDS, ["Assigning", "Stable"] * len(IDS), strict=False))
    fields = {key: {"client_id": key, "client_host": key, "group_instance_id": key} for key in IDS}
    append_rows(root, "groups", [group(key, "Consumer", states[key], 1, protocol=key) for key in IDS])
    append_rows(root, "group_members", [member(key, f"m{key}", **fields[key]) for key in IDS])
    append_rows(root, "member_assignments", [row for key in IDS for row in assigned(key, f"m{key}", 0, 1, topic=key)])
    append_rows(root, "committed_offsets", [commit(key, key, 0, 5, metadata=key) for key in IDS])
    write_states(root, ["OWNED"] * PARTITIONS)
    return root


def as_json(text: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(text)
    return rows


def as_csv(text: str) -> list[dict[str, Any]]:
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def is_harmless(result: Result) -> bool:
    return all(line.isprintable() for line in [*result.stdout.split("\n"), *result.stderr.split("\n")])


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_shows_all_groups(run: Run, tables: Path, view: tuple[str, ...]) -> None:
    text = run(*view, tables=tables)
    assert text.exit_code == 0
    assert is_harmless(text)
    parsers: dict[str, Callable[[str], list[dict[str, Any]]]] = {"json": as_json, "csv": as_csv}
    for output_format, parse in parsers.items():
        result = run(*view, "--output", output_format, "--raw", tables=tables)
        assert result.exit_code == 0
        assert {row["group"] for row in parse(result.stdout_bytes.decode())} == set(IDS)


@pytest.mark.parametrize("group_id", IDS, ids=lambda group_id: ascii(group_id[:12]))
def test_each_group_is_found_by_its_id(run: Run, tables: Path, group_id: str) -> None:
    commands = (("groups", "describe", "--members"), ("offsets", "list"), ("coordinator",))
    for command in commands:
        result = run(*command, f"--group={group_id}", "--output", "json", tables=tables)
        assert {row["group"] for row in as_json(result.stdout)} == {group_id}
    text = run(*commands[IDS.index(group_id) % 3], f"--group={group_id}", tables=tables)
    assert is_harmless(text)


def test_an_id_that_is_not_there_is_told_without_its_escapes(run: Run, tables: Path) -> None:
    for command in (("groups", "describe"), ("offsets", "list")):
        result = run(*command, "--group=no\x1b[2J\nsuch", tables=tables)
        assert result.exit_code == 1
        assert "'no\\x1b[2J\\nsuch'" in result.output
        assert is_harmless(result)


def test_a_command_line_that_is_not_utf8(tables: Path) -> None:
    """In a process of its own, whose arguments are bytes."""
    arguments: tuple[str | bytes, ...] = ("groups", "describe", "--tables", str(tables), "--group", b"\xff\x1b[31m")
    done = offsetstream(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Error: group '\\udcff\\x1b[31m' is not there\n"


def test_an_impossible_group_id_is_refused_before_the_cluster_is_contacted(run: Run, tables: Path) -> None:
    server = ("--bootstrap-server", "127.0.0.1:1")
    result = run("coordinator", "--group", "\udcff", *server, tables=tables)
    message = "Error: the group id \\udcff is not UTF-8: check the encoding of your terminal\n"
    assert (result.exit_code, result.stderr) == (2, message)


@pytest.mark.parametrize("command", [("groups", "list"), ("run", "--bootstrap-server", "127.0.0.1:1"), ("stop",)])
def test_a_folder_that_is_not_utf8(run: Run, command: tuple[str, ...]) -> None:
    result = run(*command, "--tables", "\udcff")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.endswith("the name of the folder \\udcff is not UTF-8: use another folder\n")
