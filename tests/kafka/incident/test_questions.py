"""One command answers each question about the incident, as the script's book has it."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from offsetstream.views.verdicts import VERDICTS
from testkit.page import Page
from testkit.processes import printed
from tests.kafka.incident.book import Cell, Commit
from tests.kafka.incident.instants import instant
from tests.kafka.incident.judging import outcomes
from tests.kafka.incident.recording import Recorded

pytestmark = pytest.mark.nightly

Row = dict[str, Any]
_RETENTION_MS = 60_000


def answer(recorded: Recorded, *command: str) -> list[Row]:
    """Return the rows that a command prints."""
    rows: list[Row] = json.loads(printed(*command, "--output", "json", "--tables", str(recorded.tables)))
    return rows


def time(ms: int) -> str:
    """Return an instant in the form that commands print and accept."""
    return instant(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def cell(row: Row) -> Cell:
    return Cell(row["group"], row["topic"], row["partition"])


def finding_of(row: Row) -> str:
    """Return the finding of a row, without where a recreated topic ended: the job may or may not have sampled that."""
    text: str = row["what"]
    recreated = "the topic was recreated"
    return recreated if text.startswith(recreated) else text


def is_row_of_commit(row: Row, commit: Commit) -> bool:
    return (
        cell(row) == commit.cell
        and row["to"] == commit.offset
        and time(commit.since_ms) <= row["at"] <= time(commit.until_ms)
    )


def test_audit_shows_who_moved_an_offset(recorded: Recorded) -> None:
    """The audit shows both offsets, the time, and who did it: the owner, or someone while the group was empty."""
    audit_rows = answer(recorded, "offsets", "audit", "--since", recorded.since.isoformat())
    rows = [row for row in audit_rows if row["group"] not in recorded.book.automatic]
    found = [(cell(row), row["from"], row["to"], finding_of(row)) for row in rows]
    assert sorted(found) == sorted(
        (
            each.cell,
            each.previous,
            each.committed,
            each.finding + (f", to {each.moved_to}" if each.moved_to else ""),
        )
        for each in recorded.book.findings
    )
    for row in rows:
        assert any(is_row_of_commit(row, commit) for commit in recorded.book.commits), row
        assert row["moved"] == row["to"] - row["from"]
        by_owner = (f"{row['group']}-1", "Stable", 1)
        without_members = (None, "Empty", 0)
        expected_by_finding = {
            "moved back by its owner": by_owner,
            "moved back while the group had no members": without_members,
        }
        if expected := expected_by_finding.get(row["what"].partition(",")[0]):
            assert (row["client_id"], row["state"], row["members"]) == expected, row


def test_rebalances_show_who_joined_and_left(recorded: Recorded) -> None:
    """The command shows who joined and left. The killed member left when its session timed out."""
    passings = defaultdict[tuple[str, str], list[str]](list)
    rows = answer(recorded, "groups", "rebalances", "--since", recorded.since.isoformat())
    for row in rows:
        for change in ("joined", "left"):
            clients = row[f"{change}_clients"]
            passings[row["group"], change] += clients.split(", ") if clients else []
    for group, change in product({each.group for each in recorded.book.passings}, ("joined", "left")):
        expected = sorted(e.client for e in recorded.book.passings if (e.group, e.change) == (group, change))
        assert sorted(passings[group, change]) == expected, (group, change)
    lost = recorded.book.handovers[0]
    (row,) = [row for row in rows if row["left_clients"] == lost.giver]
    assert (row["group"], row["members"], row["state"], row["joined_clients"]) == (lost.cell.group, 1, "Stable", None)
    assert time(lost.had_ms) < row["at"] < time(lost.taken_ms)


def test_describe_at_shows_past_owners(recorded: Recorded) -> None:
    lost = recorded.book.handovers[0]
    group = lost.cell.group
    owners = {
        at_ms: {
            cell(row): row["client_id"]
            for row in answer(recorded, "groups", "describe", "--group", group, "--at", time(at_ms))
        }
        for at_ms in (lost.had_ms, lost.taken_ms)
    }
    assert set(owners[lost.taken_ms].values()) == {lost.taker}
    for each in recorded.book.handovers:
        assert owners[lost.had_ms][each.cell] == each.giver
        assert owners[lost.taken_ms][each.cell] == each.taker
    unmoved = owners[lost.had_ms].keys() - {each.cell for each in recorded.book.handovers}
    assert {owners[lost.had_ms][each] for each in unmoved} == {lost.taker}


def test_lag_at_shows_past_lag(recorded: Recorded) -> None:
    expected, at = recorded.book.lags, time(recorded.book.lags_ms)
    groups = [f"--group={each.group}" for each in expected]
    assert {cell(row): row["lag"] for row in answer(recorded, "lag", *groups, "--at", at)} == expected
    described = answer(recorded, "groups", "describe", *groups, "--at", at)
    assert {cell(row): row["lag"] for row in described} == expected


def test_expiring_announces_what_expires(recorded: Recorded) -> None:
    """Offsets expired no earlier than announced, and the final announcement names all offsets that expire next."""
    book, endings = recorded.book, {each.cell: each for each in recorded.book.endings}
    (group,) = {each.group for each in endings}
    at = time(book.endings[0].until_ms)
    announced = {
        cell(row): row["expires_at"]
        for row in answer(recorded, "offsets", "expiring", "--within", "12h", "--group", group, "--at", at)
    }
    assert announced.keys() == endings.keys()
    for each, (_, since_ms, until_ms) in endings.items():
        assert time(since_ms + _RETENTION_MS) <= announced[each] <= time(until_ms + _RETENTION_MS)
    deleted = {
        cell(row): row["at"]
        for row in answer(recorded, "offsets", "history", "--group", group)
        if row["what"] == "deleted: expired"
    }
    assert deleted.keys() == endings.keys()
    assert all(announced[each] <= deleted[each] for each in deleted)
    remaining = {each for each in recorded.answers.offsets if not recorded.answers.groups[each.group]["member_count"]}
    now = recorded.now.isoformat()
    assert {cell(row) for row in answer(recorded, "offsets", "expiring", "--within", "12h", "--at", now)} == remaining


def test_status_names_dead_groups(recorded: Recorded) -> None:
    now, statuses = recorded.now.isoformat(), recorded.book.statuses
    rows = answer(recorded, "groups", "status", "--at", now, "--fail-on", "never")
    assert {row["group"] for row in rows} == recorded.answers.groups.keys()
    statuses_by_group = {
        row["group"]: (row["burrow"], row["burrow_partition_status"] or "OK", row["verdict"]) for row in rows
    }
    possible = outcomes(recorded.book, recorded.answers, recorded.now_ms)
    assert {
        name: actual
        for name, actual in statuses_by_group.items()
        if actual not in [(status, worst or "OK", verdict) for status, worst, verdict in possible[name]]
    } == {}
    assert {name: statuses_by_group[name] for name in statuses} == statuses
    dead = answer(recorded, "groups", "status", "--at", now, "--verdict", "dead", "--fail-on", "never")
    assert {row["group"] for row in dead} == {name for name, (*_, verdict) in statuses.items() if verdict == "dead"}


def test_the_report_shows_verdicts_findings_and_owners(recorded: Recorded, tmp_path: Path) -> None:
    file, book = tmp_path / "night.html", recorded.book
    period = ("--since", recorded.since.isoformat(), "--until", recorded.now.isoformat())
    printed("report", "--file", str(file), *period, "--tables", str(recorded.tables))
    lines = Page(file).text.splitlines()  # a row of a table is a line
    levels = {each.word: each.level for each in VERDICTS}
    for name, (*_, verdict) in book.statuses.items():
        assert any(line.startswith(f"{name}{levels[verdict]}{verdict}") for line in lines), name
    for found in book.findings:
        assert any(line.startswith(found.cell.group) and found.finding in line for line in lines), found
    for each in book.handovers:
        (owned,) = [
            line for line in lines if line.startswith(f"{each.cell.group}{each.cell.topic}-{each.cell.partition}")
        ]
        assert each.giver in owned
        assert each.taker in owned
