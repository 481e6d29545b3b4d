"""A group or topic that is asked for and is not there gets exit code 1, and what is known of it: never reassurance."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.group_world import GroupWorld
from testkit.sampled_logs import instant
from testkit.tables import append_rows, new_tables
from tests.unit.cli.conftest import Run, commit, group, place

REMOVED, TOMBSTONE = 1_767_607_200_000, 1_767_607_260_000  # 2026-01-05, 10:00 and 10:01
QUESTIONS = (
    ("groups", "status"),
    ("lag",),
    ("groups", "history", "--since", "2026-01-06"),
    ("groups", "rebalances", "--since", "2026-01-06"),
    ("offsets", "expiring"),
    ("offsets", "orphans"),
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cluster that had two more groups: one with members, of which a record tells, and one with offsets only."""
    root = tmp_path_factory.mktemp("gone")
    new_tables(root, GroupWorld(1).rows)
    removed = group("removed", "Classic", "Empty", 0) | {"record_offset": 9, "is_removed": True, "log_id": 0}
    append_rows(root, "group_history", [removed | {"record_timestamp": instant(REMOVED)}])
    told = {"log_id": 0, "is_tombstone": True, "record_timestamp": instant(TOMBSTONE), "record_offset": 9}
    rows = [commit("simple", "orders", 0, 7) | {"log_id": 0, "is_tombstone": False}, place("simple") | told]
    append_rows(root, "offset_commits", [row | {"topic": "orders", "partition": 0} for row in rows])
    deleted = commit("simple", "archive", 0, 7) | {"log_id": 0, "is_tombstone": True, "record_offset": 10}
    append_rows(root, "offset_commits", [deleted | {"record_timestamp": instant(TOMBSTONE)}])
    append_rows(root, "topics", [{"topic_id": "gone", "topic": "archive", "deleted_at": instant(TOMBSTONE)}])
    return root


@pytest.mark.parametrize(
    "question", [("lag", "--all-groups"), ("offsets", "expiring"), ("offsets", "orphans")], ids=" ".join
)
def test_a_deleted_topic_is_reported(run: Run, world: Path, question: tuple[str, ...]) -> None:
    shown = run(*question, "--topic", "archive", tables=world)
    told = "topic 'archive' is not there: it was deleted by 2026-01-05T10:01:00.000Z"
    assert (shown.exit_code, told in shown.stderr) == (1, True), shown.output


@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("removed", "group 'removed' is not there: it was deleted at 2026-01-05T10:00:00.000Z"),
        ("simple", "group 'simple' is not there: its last offset was deleted at 2026-01-05T10:01:00.000Z"),
        ("group-O", "group 'group-O' is not there; nearest: 'group-0'"),
    ],
)
def test_a_deleted_group_is_reported(run: Run, world: Path, question: tuple[str, ...], name: str, told: str) -> None:
    shown = run(*question, "--group", name, tables=world)
    assert (shown.exit_code, shown.stdout, told in shown.stderr) == (1, "", True), shown.output


def test_an_existing_group_is_shown_next_to_a_deleted_one(run: Run, world: Path) -> None:
    shown = run("groups", "status", "--group", "removed", "--group", "group-0", tables=world)
    assert (shown.exit_code, "group-0" in shown.stdout) == (1, True)
    assert "group 'removed' is not there: it was deleted at " in shown.stderr


def test_a_deleted_group_still_has_its_history(run: Run, world: Path) -> None:
    shown = run("groups", "history", "--group", "removed", "--since", "2026-01-05", tables=world)
    assert (shown.exit_code, "removed" in shown.stdout) == (0, True), shown.output


def test_no_page_is_written_for_an_unknown_group(run: Run, world: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    period = ("--since", "2026-01-05T10:00", "--until", "2026-01-05T10:40")
    shown = run("report", "--group", "nope", *period, "--file", str(page), tables=world)
    assert (shown.exit_code, page.exists()) == (1, False), shown.output
    assert "Error: group 'nope' is not there" in shown.stderr
    shown = run("report", "--group", "removed", *period, "--file", str(page), tables=world)
    assert (shown.exit_code, page.exists()) == (0, True), shown.output
    assert "group 'removed' is not there: it was deleted at 2026-01-05T10:00:00.000Z" in shown.stderr
