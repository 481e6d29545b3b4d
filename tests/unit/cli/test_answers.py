"""The commands that answer questions, over a made-up cluster of forty minutes."""

from __future__ import annotations

import csv
import io
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from offsetstream.cli.group_history import merged
from testkit.page import IDS
from testkit.sampled_logs import START_MS, instant
from testkit.tables import append_rows, new_tables
from tests.unit.cli.conftest import Run, assigned, commit, group, member
from tests.unit.cli.test_hostile_ids import is_harmless

END, THEN, THEN_HOSTILE = "2026-01-05T10:40Z", "2026-01-05 10:20", "2026-01-05"
COMMANDS = (
    ("groups", "status", "--at", END),
    ("groups", "list", "--at", THEN),
    ("groups", "rebalances", "--since", THEN),
    ("groups", "history", "--since", THEN),
    ("groups", "describe", "--all-groups", "--at", THEN),
    ("groups", "describe", "--all-groups", "--members", "--at", THEN),
    ("groups", "describe", "--all-groups", "--state", "--at", THEN),
    ("lag", "--all-groups", "--time", "--at", END),
    ("lag", "--all-groups"),
    ("offsets", "list", "--at", THEN),
    ("offsets", "list"),
    ("offsets", "history", "--since", THEN),
    ("offsets", "audit", "--since", THEN),
    ("offsets", "expiring", "--at", END, "--kept"),
    ("offsets", "orphans", "--at", END),
)


STALE = "STALE: nothing is known of the last "
RECREATED = "2 groups: the topic stock was recreated"


def test_status_is_unknown_when_the_job_is_dead(run: Run, world: Path) -> None:
    """Nobody has looked for months: what groups do now is unknown, neither well nor dead."""
    shown = run("groups", "status", tables=world)
    assert shown.stderr.startswith(STALE)
    first, second = shown.stderr.splitlines()
    assert first.endswith("since 2026-01-05T10:40:00.000Z: is the job running?")
    assert second == "10 groups: the job has not checked"
    assert "0 of 10 groups are not OK, 10 unknown (because the job has not checked), data as of" in shown.stdout
    rows = rows_of(run, world, "groups", "status")
    assert {(row["level"], row["stale"]) for row in rows} == {("UNKNOWN", True)}
    assert (shown.exit_code, run("groups", "status", "--fail-on", "never", tables=world).exit_code) == (5, 0)
    now = run("groups", "status", "--at", END, tables=world)
    assert (now.exit_code, now.stderr) == (4, f"{RECREATED}\n")
    ever = run("groups", "status", "--max-age", "none", tables=world)
    assert (ever.exit_code, ever.stderr) == (4, "")


@pytest.mark.parametrize(
    "command",
    [
        *(("groups", "list"), ("groups", "describe", "--all-groups"), ("groups", "describe", "--group", "group-2")),
        *(("groups", "describe", "--all-groups", view) for view in ("--state", "--members")),
        *(("coordinator", "--group", "group-2"), ("offsets", "expiring", "--kept"), ("offsets", "orphans")),
        *(("offsets", "list"), ("lag", "--all-groups")),
    ],
    ids=" ".join,
)
def test_rows_have_their_age(run: Run, world: Path, command: tuple[str, ...]) -> None:
    assert STALE in run(*command, tables=world).stderr
    for row in json.loads(run(*command, "--output", "json", tables=world).stdout):
        assert row["stale"] is True, row
        assert row["as_of"] <= "2026-01-05T10:40:00.000Z"
    assert STALE not in run(*command, "--max-age", "none", tables=world).stderr
    for row in json.loads(run(*command, "--max-age", "none", "--output", "json", tables=world).stdout):
        assert row["stale"] is False, row


@pytest.mark.parametrize(
    "command",
    [
        ("groups", "list"),
        ("groups", "status"),
        ("lag", "--all-groups"),
        ("offsets", "list"),
        ("offsets", "expiring"),
        ("offsets", "orphans"),
    ],
    ids=" ".join,
)
def test_exit_code_1_where_nothing_is_known_of_all_groups(run: Run, world: Path, command: tuple[str, ...]) -> None:
    shown = run(*command, "--at", "2026-01-04", tables=world)
    assert shown.exit_code == 1
    assert "nothing is known at 2026-01-04T00:00:00.000Z: " in shown.stderr
    assert "unknown at that time" in shown.stderr


def rows_of(run: Run, world: Path, *command: str) -> list[dict[str, Any]]:
    shown = run(*command, "--output", "json", tables=world)
    assert shown.exit_code in {0, 4, 5}, shown.output
    found: list[dict[str, Any]] = json.loads(shown.stdout)
    return found


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_each_command_answers_in_text_json_and_csv(run: Run, world: Path, command: tuple[str, ...]) -> None:
    text = run(*command, tables=world)
    warned = [line for line in text.stderr.splitlines() if line != RECREATED]
    told = "" if text.stderr.startswith(STALE) else "".join(warned)
    assert (text.exit_code, told) in {(0, ""), (4, "")} or "has no active" in text.stderr
    heading = next(line for line in text.stdout.splitlines() if line)
    assert heading.split()[0] == "GROUP"
    assert text.stdout.splitlines()[-1].endswith(("Z.", "Z ago.", " ago.", "range.", " old).", "included)."))
    rows = rows_of(run, world, *command)
    assert len(rows) > 0
    table = run(*command, "--output", "csv", "--raw", tables=world)
    assert len(list(csv.reader(io.StringIO(table.stdout)))) == len(rows) + 1
    assert text.stdout.splitlines()[-1][:4] in table.stderr  # the sentence


def test_status(run: Run, world: Path) -> None:
    shown = run("groups", "status", "--at", END, tables=world)
    assert shown.exit_code == 4
    assert shown.stdout.splitlines()[-1].startswith(
        "8 of 11 groups are not OK, 2 unknown, 77 messages gone unread, as of"
    )
    rows = rows_of(run, world, "groups", "status", "--at", END)
    assert [row["level"] for row in rows] == ["ERR"] * 6 + ["WARN"] * 2 + ["UNKNOWN"] * 2 + ["OK"]
    assert [row["burrow"] for row in rows] == ["ERR"] * 6 + ["OK"] * 2 + ["NOTFOUND"] * 2 + ["OK"]
    (late,) = [row for row in rows if row["group"] == "group-10"]
    assert (late["verdict"], late["topic_partition"], late["time_lag"]) == ("stopped", "audit-0", "7 min 54 s")


def test_status_and_lag_agree_on_how_long_messages_wait(run: Run, world: Path) -> None:
    """Of a group's partitions the longest, which is a least where the samples do not reach back to one of them."""
    at = "2026-01-05T10:03"
    of_group = defaultdict[str, list[dict[str, Any]]](list)
    for row in rows_of(run, world, "lag", "--all-groups", "--time", "--at", at):
        if row["time_lag_seconds"] is not None:
            of_group[row["group"]].append(row)
    told = {row["group"]: row for row in rows_of(run, world, "groups", "status", "--at", at) if row["time_lag"]}
    assert told.keys() == of_group.keys()
    for name, row in told.items():
        assert row["time_lag_seconds"] == max(each["time_lag_seconds"] for each in of_group[name])
        at_least = any(each["time_lag_method"] == "at least" for each in of_group[name])
        assert (row["time_lag_at_least"], row["time_lag"].startswith(">")) == (at_least, at_least)
    assert {row["time_lag_at_least"] for row in told.values()} == {True, False}


@pytest.mark.parametrize(
    ("fail_on", "group_id", "code"),
    [
        ("ERR", "group-10", 4),
        ("never", "group-10", 0),
        ("WARN", "group-9", 4),
        ("ERR", "group-9", 0),
    ],
)
def test_fail_on_sets_which_levels_fail(run: Run, world: Path, fail_on: str, group_id: str, code: int) -> None:
    shown = run("groups", "status", "--at", END, "--group", group_id, "--fail-on", fail_on, tables=world)
    assert shown.exit_code == code


def test_status_of_a_verdict(run: Run, world: Path) -> None:
    """The sentence is of all groups; the exit code of those that are shown."""
    every = run("groups", "status", "--at", END, tables=world)
    rows = rows_of(run, world, "groups", "status", "--at", END)
    for verdict in ("dead", "stopped", "ok"):
        shown = run("groups", "status", "--at", END, "--verdict", verdict, tables=world)
        wanted = [row["group"] for row in rows if row["verdict"] == verdict]
        assert [line.split()[0] for line in shown.stdout.splitlines()[1:-1]] == wanted
        assert shown.stdout.splitlines()[-1] == every.stdout.splitlines()[-1]
        assert shown.exit_code == (0 if verdict == "ok" else 4)
    both = rows_of(run, world, "groups", "status", "--at", END, "--verdict", "dead", "--verdict", "ok")
    assert {row["verdict"] for row in both} == {"dead", "ok"}
    assert all("the group has no member" in row["reason"] for row in both if row["verdict"] == "dead")


def test_groups_without_an_offset_are_named_and_not_shown_as_no_lag(run: Run, world: Path) -> None:
    groups = ("--group", "group-10", "--group", "group-11")
    without = run("lag", *groups, "--topic", "orders", "--at", END, tables=world)
    assert without.stdout.splitlines()[-1] == (
        "No message waits in 0 partitions of 0 groups; as of 2026-01-05T10:40:00.000Z. "
        "No committed offset and no partition: groups 'group-10', 'group-11'."
    )
    assert without.exit_code == 0
    share = run("lag", "--group", "group-1", "--at", END, tables=world).stdout.splitlines()
    assert (len(share), share[1].split()[4:6]) == (3, ["22184", "-"])
    assert (
        "The lag of 1 partition of 1 group is unknown; as of 2026-01-05T10:40:00.000Z, end offsets as of" in share[-1]
    )


def test_lag(run: Run, world: Path) -> None:
    rows = rows_of(run, world, "lag", "--group", "group-10", "--time", "--at", END)
    told = ("topic", "partition", "current_offset", "log_end_offset", "lag", "client_id", "time_lag", "note")
    assert [tuple(row[name] for name in told) for row in rows] == [
        ("audit", 0, 18461, 22184, 3723, "client-3", "7 min 53 s", None),
        ("stock", 0, 426, 785, 359, "client-3", "7 min 54 s", None),
        ("stock", 1, None, None, None, "client-4", None, "no offset: topic deleted"),
    ]
    text = run("lag", "--group", "group-10", "--at", END, tables=world).stdout.splitlines()
    assert text[0].split()[:6] == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    assert text[-1] == (
        "4082 messages wait in 2 of 3 partitions of 1 group; the lag of 1 is unknown; as of 2026-01-05T10:40:00.000Z, "
        "end offsets as of 2026-01-05T10:39:53.000Z (7.0 s old)."
    )


def test_lag_says_that_no_message_waits(run: Run, world: Path) -> None:
    nothing = run("lag", "--group", "group-7", "--at", END, tables=world).stdout.splitlines()[-1]
    assert nothing.startswith("No message waits in 1 partition of 1 group; as of")
    known = run("lag", "--group", "group-5", tables=world).stdout.splitlines()[-1]
    assert known.startswith("No message waits in 1 of 2 partitions of 1 group; the lag of 1 is unknown; data as of")


def test_end_offsets_keep_the_time_of_their_last_sample(run: Run, world: Path) -> None:
    """Nothing was sampled after 10:39:53: whoever asks about later is told so, and each time the same."""
    first, *others = (rows_of(run, world, "lag", "--all-groups", "--at", "2026-01-05T10:45") for _ in range(5))
    assert max(row["sampled_at"] for row in first if row["sampled_at"]) == "2026-01-05T10:39:53.000Z"
    assert all(each == first for each in others)


def test_rebalances(run: Run, world: Path) -> None:
    shown = run("groups", "rebalances", "--group", "group-9", "--since", "2026-01-05T10:14:30", tables=world)
    assert [line.split()[1] for line in shown.stdout.splitlines()[1:-1]] == ["4", "5", "6"]
    # The last two are four seconds apart, and within one pause.
    assert "3 rebalances in 5 min 39 s since" in shown.stdout
    assert "the group paused its commits for 1 min 28 s in total, 44 s at most" in shown.stdout


def test_one_rebalance_has_no_length(run: Run, world: Path) -> None:
    period = ("--since", "2026-01-05T10:14:30", "--until", "2026-01-05T10:15:30")
    shown = run("groups", "rebalances", "--group", "group-9", *period, tables=world).stdout.splitlines()
    assert shown[-1].startswith("1 rebalance since 2026-01-05T10:14:30.000Z until ")


def test_pauses_that_overlap_count_once() -> None:
    spans = [(0, 5), (3, 8), (4, 6), (8, 9), (20, 30)]
    at = [(instant(start), instant(end)) for start, end in spans]
    assert merged(at) == [(instant(0), instant(8)), (instant(8), instant(9)), (instant(20), instant(30))]


def test_history(run: Run, world: Path) -> None:
    rows = rows_of(run, world, "groups", "history", "--group", "group-9", "--until", "2026-01-05T10:10")
    assert [(row["what"], row["state"], row["epoch"], row["client_id"], row["partitions"]) for row in rows] == [
        ("group", "Stable", 1, None, None),
        ("joined", None, 1, "client-1", None),
        ("assigned", None, 1, "client-1", "audit:0;orders:0,1,2"),
        ("group", "Stable", 2, None, None),
        ("left", None, 2, "client-1", None),
        ("joined", None, 2, "client-2", None),
        ("revoked", None, 2, "client-1", "audit:0;orders:0,1,2"),
        ("assigned", None, 2, "client-2", "audit:0;orders:0,1,2"),
    ]


def test_describe_at_shows_who_owned_a_partition(run: Run, world: Path) -> None:
    (before, after) = (
        {(row["topic"], row["partition"]): row["client_id"] for row in rows_of(run, world, *command)}
        for command in (
            ("groups", "describe", "--group", "group-9", "--at", "2026-01-05T10:15"),
            ("groups", "describe", "--group", "group-9", "--at", "2026-01-05T10:16"),
        )
    )
    assert (before["orders", 1], after["orders", 1]) == ("client-2", "client-3")
    shown = run("groups", "describe", "--group", "group-9", "--at", "2026-01-05T10:16", tables=world).stdout
    closing = "As of 2026-01-05T10:16:00.000Z: Classic, Stable, generation 4, 2 members, range; end offsets as of"
    assert shown.splitlines()[-1].startswith(closing)


def test_offsets_history(run: Run, world: Path) -> None:
    rows = rows_of(run, world, "offsets", "history", "--group", "group-5", "--topic", "orders", "--partition", "2")
    assert [row["committed_offset"] for row in rows[-2:]] == [10957, None]
    assert (rows[-1]["what"], rows[-1]["at"]) == ("deleted: expired", "2026-01-05T10:38:24.513Z")
    moved = [later["committed_offset"] - row["committed_offset"] for row, later in pairwise(rows[:-1])]
    assert [row["moved"] for row in rows[1:-1]] == moved
    later = rows_of(
        run,
        world,
        *["offsets", "history", "--group", "group-5", "--topic", "orders", "--partition", "2", "--since"],
        THEN,
    )
    assert later == rows[-len(later) :]


def test_audit_shows_partitions_of_one_commit_together(run: Run, world: Path) -> None:
    each = rows_of(run, world, "offsets", "audit", "--since", THEN_HOSTILE)
    text = run("offsets", "audit", "--since", THEN_HOSTILE, tables=world).stdout.splitlines()
    assert 2 < len(text) - 2 < len(each)
    assert any("," in line.split()[2] for line in text[1:-1])
    assert text[-1].startswith(f"{len(each)} unusual offset moves in ")


@pytest.mark.parametrize("command", ["offsets audit", "offsets history", "groups rebalances", "groups history"])
def test_a_period_changes_no_row(run: Run, world: Path, command: str) -> None:
    """What came before a period is read as far as its rows need it; without a period or a group it is the last day."""
    every = rows_of(run, world, *command.split(), "--since", "2026-01-05")
    later = rows_of(run, world, *command.split(), "--since", "2026-01-05T10:20")
    at = [row["at"] for row in every]
    assert 0 < len(later) < len(every)
    assert later == [row for row in every if row["at"] >= "2026-01-05T10:20"]
    assert {row["group"] for row in every} == {
        row["group"] for row in rows_of(run, world, *command.split(), "--since", at[0])
    }
    of_one = rows_of(run, world, *command.split(), "--group", "group-8", "--since", "2026-01-05T10:20")
    assert of_one == [row for row in later if row["group"] == "group-8"]
    assert rows_of(run, world, *command.split()) == []


@pytest.mark.parametrize("command", ["offsets audit", "offsets history", "groups rebalances", "groups history"])
def test_the_answer_about_a_past_period_stays_the_same(run: Run, world: Path, command: str) -> None:
    over = ("--since", "2026-01-05T10:20", "--until", "2026-01-05T10:30")
    first, second = (run(*command.split(), *over, tables=world).stdout for _ in range(2))
    assert first == second
    assert " since 2026-01-05T10:20:00.000Z until 2026-01-05T10:30:00.000Z" in first.splitlines()[-1]
    assert "as of" not in first
    going_on = run(*command.split(), *over[:2], tables=world).stdout.splitlines()[-1]
    assert " since 2026-01-05T10:20:00.000Z, data as of 2026-01-05T10:40:00.000Z (" in going_on


def test_expiring_within(run: Run, world: Path) -> None:
    soon = rows_of(run, world, "offsets", "expiring", "--at", END, "--within", "2m")
    every = rows_of(run, world, "offsets", "expiring", "--at", END)
    assert {row["group"] for row in every} - {row["group"] for row in soon} == {"group-11"}
    assert [row["expires_in"] for row in soon][:4] == ["due", "due", "due", "1 min 56 s"]


def test_one_offset_expires(run: Run, world: Path) -> None:
    shown = run("offsets", "expiring", "--at", END, "--group", "group-2", "--topic", "stock", tables=world)
    assert shown.stdout.splitlines()[-1].startswith("1 offset of 1 group expires, the first at 2026-01-05T10:41:56")
    kept = run("offsets", "expiring", "--at", END, "--group", "group-0", "--topic", "audit", tables=world)
    assert "; 1 other does not expire (--kept shows why); " in kept.stdout


def test_export_at_has_the_offsets_of_that_time(run: Run, world: Path) -> None:
    """The rows are those that the offsets of that time had, in the format of Kafka's own export (reference 8.5)."""
    shown = run("offsets", "export", "--group", "group-0", "--at", THEN, tables=world)
    assert shown.stdout == "audit,0,11218\npayments,0,2100\npayments,1,953\n"
    assert shown.stderr == "3 offsets of 1 group, as of 2026-01-05T10:20:00.000Z.\n"
    both = run("offsets", "export", "--group", "group-0", "--group", "group-9", "--at", THEN, tables=world)
    assert both.stdout.splitlines()[0] == "group-0,audit,0,11218"
    topic = run("offsets", "export", "--group", "group-0", "--topic", "audit", "--at", THEN, tables=world)
    assert topic.stdout == "audit,0,11218\n"
    missing = run("offsets", "export", "--group", "group-1", "--at", THEN, tables=world)
    assert (missing.exit_code, missing.stdout, missing.stderr) == (1, "", "Error: group 'group-1' had no such offset\n")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("lag", "--group", "grup-0"), "Error: group 'grup-0' is not there; nearest: 'group-0', 'group-1"),
        (("groups", "status", "--group", "x"), "Error: group 'x' is not there\n"),
        (("groups", "rebalances", "--group", "group-O"), "nearest: 'group-0'"),
        (("groups", "history", "--group", "group-O"), "nearest: 'group-0'"),
        (("groups", "describe", "--group", "group-O", "--at", THEN), "nearest: 'group-0'"),
        (("offsets", "list", "--group", "group-O", "--at", THEN), "nearest: 'group-0'"),
        (("offsets", "history", "--topic", "order"), "Error: topic 'order' is not there; nearest: 'orders'"),
        (("offsets", "audit", "--topic", "order"), "nearest: 'orders'"),
        (("offsets", "expiring", "--topic", "order"), "nearest: 'orders'"),
        (("offsets", "orphans", "--group", "group-O"), "nearest: 'group-0'"),
        (("offsets", "export", "--group", "group-O"), "nearest: 'group-0'"),
        (("lag", "--group", "group-0", "--at", "2026-01-05T09:00"), "complete from 2026-01-05T09:59:00.000Z on only"),
        (("groups", "describe", "--group", "group-0", "--at", "2026-01-05T09:00"), "complete from 2026-01-05T09:59"),
        (("offsets", "export", "--group", "group-0", "--at", "2026-01-05T09:00"), "complete from 2026-01-05T09:59"),
    ],
)
def test_missing_names_are_reported(run: Run, world: Path, command: tuple[str, ...], told: str) -> None:
    shown = run(*command, tables=world)
    assert (shown.exit_code, shown.stdout, told in shown.stderr) == (1, "", True), shown.output


@pytest.mark.parametrize(
    "command",
    [
        ("lag",),
        ("lag", "--all-groups", "--group", "a"),
        ("lag", "--all-groups", "--bootstrap-server", "localhost:1"),  # it reads the tables without --exact
        ("offsets", "export"),
        ("groups", "status", "--at", "soon"),
        ("groups", "list", "--at", "2999-01-01"),
    ],
)
def test_wrong_usage(run: Run, world: Path, command: tuple[str, ...]) -> None:
    assert run(*command, tables=world).exit_code == 2


def test_watch_answers_again(run: Run, world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    shown = run("lag", "--group", "group-0", "--watch", "2", tables=world)
    assert (shown.exit_code, waited, shown.stdout.count("GROUP ")) == (0, [2, 2, 2], 3)


def test_offsets_list_uses_sampled_end_offsets(run: Run, world: Path) -> None:
    shown = run("groups", "describe", "--group", "group-10", tables=world)
    lines = shown.stdout.splitlines()
    assert [line.split()[3:6] for line in lines[2:4]] == [["18461", "22184", "3723"], ["426", "785", "359"]]
    assert lines[-1].startswith("End offsets as of 2026-01-05T10:39:53.000Z (")
    listed = run("offsets", "list", "--group", "group-10", tables=world).stdout.splitlines()
    assert listed[-1].startswith("End offsets as of 2026-01-05T10:39:53.000Z (")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every id as a group with a member, a topic and a history, of a minute ago."""
    root, at = tmp_path_factory.mktemp("hostile"), instant(START_MS)
    new_tables(root)
    place = {"log_id": 0, "record_timestamp": at, "commit_timestamp": at, "commit_timestamp_ms": START_MS}
    book = {"log_id": 0, "history_complete_from": at - timedelta(minutes=1), "load_state": "OWNED"}
    append_rows(root, "offsets_partitions", [book | {"offsets_partition": number} for number in range(50)])
    append_rows(
        root, "decoded_logs", [{"offsets_partition": n, "log_id": 0, "decoded_from_offset": 0} for n in range(50)]
    )
    for table, rows in hostile_rows(at).items():
        append_rows(
            root,
            table,
            [row | {key: place[key] for key in place if key in row or table == "offset_commits"} for row in rows],
        )
    return root


def hostile_rows(at: datetime) -> dict[str, list[dict[str, Any]]]:
    def history(row: dict[str, Any], number: int, **fields: Any) -> dict[str, Any]:
        row = {name: value for name, value in row.items() if name != "in_coordinator_partition"}
        common = {"log_id": 0, "record_timestamp": at, "record_offset": number, "written_day": at.date()}
        return row | common | fields

    groups = [group(key, "Consumer", "Stable", 1, group_epoch=1) for key in IDS]
    members = [member(key, "m", client_id=key, client_host=key, group_instance_id=key) for key in IDS]
    owned = [row for key in IDS for row in assigned(key, "m", 0, topic=key)]
    commits = [commit(key, key, 0, 5, metadata=key) for key in IDS]
    back = [commit(key, key, 0, 3, metadata=key) for key in IDS]
    ends = [{"topic": key, "partition": 0, "high_watermark": 9, "log_start_offset": 0} for key in IDS]
    return {
        "groups": groups,
        "group_members": members,
        "member_assignments": owned,
        "committed_offsets": [row | {"record_offset": 10 * n + 5} for n, row in enumerate(back)],
        # Of no partition, so that each offset is an orphan.
        "topics": [{"topic_id": f"id-{n}", "topic": key, "partitions": 0} for n, key in enumerate(IDS)],
        "topic_partitions": [row | {"sampled_at": at, "changed_at": at} for row in ends],
        "end_offsets": [row | {"sampled_at": at, "previous_sampled_at": at, "written_day": at.date()} for row in ends],
        "group_history": [history(row, 10 * n + 1, is_removed=False) for n, row in enumerate(groups)],
        "member_history": [history(row, 10 * n + 2, change="joined", epoch=1) for n, row in enumerate(members)],
        "assignment_history": [history(row, 10 * n + 3, change="assigned", epoch=1) for n, row in enumerate(owned)],
        "offset_commits": [
            *(history(row, 10 * n + 4, is_tombstone=False) for n, row in enumerate(commits)),
            *(history(row, 10 * n + 5, is_tombstone=False) for n, row in enumerate(back)),
        ],
    }


HOSTILE = (
    ("groups", "status"),
    ("groups", "rebalances", "--since", THEN_HOSTILE),
    ("groups", "history", "--since", THEN_HOSTILE),
    ("groups", "describe", "--all-groups", "--at", "2026-01-05T10:30"),
    ("lag", "--all-groups", "--time"),
    ("offsets", "list", "--at", "2026-01-05T10:30"),
    ("offsets", "history", "--since", THEN_HOSTILE),
    ("offsets", "audit", "--since", THEN_HOSTILE),
    ("offsets", "expiring", "--kept"),
    ("offsets", "orphans"),
    ("sql", 'SELECT group_id AS "group", * FROM lag'),
)


@pytest.mark.parametrize("command", HOSTILE, ids=lambda command: " ".join(command[:2])[:20])
def test_hostile_ids_stay_text(run: Run, hostile: Path, command: tuple[str, ...]) -> None:
    text = run(*command, tables=hostile)
    assert text.exit_code in {0, 4, 5}, text.output[:1000]
    assert is_harmless(text)
    for output_format in ("json", "csv"):
        shown = run(*command, "--output", output_format, "--raw", tables=hostile)
        assert shown.exit_code in {0, 4, 5}, (shown.output[:1000], shown.exception)
        content = shown.stdout_bytes.decode()
        rows = json.loads(content) if output_format == "json" else parsed(content)
        assert {row["group"] for row in rows} == set(IDS)


@pytest.mark.parametrize("command", HOSTILE[:-1], ids=lambda command: " ".join(command[:2]))
def test_an_unknown_id_is_printed_without_its_escapes(run: Run, hostile: Path, command: tuple[str, ...]) -> None:
    wanted = [part for part in command if part != "--all-groups"]
    shown = run(*wanted, "--group=no\x1b[2J\nsuch\u202e", tables=hostile)
    assert (shown.exit_code, "no\\x1b[2J\\nsuch\\u202e" in shown.output) == (1, True), shown.output[:1000]
    assert is_harmless(shown)


def parsed(text: str) -> Iterator[dict[str, Any]]:
    csv.field_size_limit(1 << 20)
    return csv.DictReader(io.StringIO(text, newline=""), strict=True)


def test_exported_ids_are_as_kafka_reads_them(run: Run, hostile: Path) -> None:
    wanted = [key for key in IDS if "\n" not in key]
    shown = run("offsets", "export", *(f"--group={key}" for key in wanted), tables=hostile)
    lines = [next(csv.reader([line])) for line in shown.stdout_bytes.decode().split("\n")[:-1]]
    assert sorted(lines) == sorted([key, key, "0", "3"] for key in wanted)
    refused = run("offsets", "export", "--group", "line\nfeed", tables=hostile)
    assert (refused.exit_code, "reads a file line by line" in refused.stderr) == (2, True)
    assert is_harmless(refused)
