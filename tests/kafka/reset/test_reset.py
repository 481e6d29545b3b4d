"""Committed offsets are reset, deleted and restored on a live cluster."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from offsetstream import CommittedOffset
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.operations.plan import Change
from offsetstream.operations.undo import Snapshot, write_snapshot
from testkit.live_logs import joined
from testkit.processes import within
from testkit.waiting import SECONDS
from tests.kafka.reset.stage import RECORDS, Run, commit, committed, rows

pytestmark = pytest.mark.long


def journal(tables: Path) -> list[dict[str, Any]]:
    query = "SELECT * FROM operations ORDER BY happened_at"
    return rows(within("sql", query, "--output", "json", "--tables", str(tables)))


def test_a_reset_and_its_undo(kafka: EmbeddedKafka, run: Run, tables: Path) -> None:
    before = {("orders", 0): CommittedOffset(5, 0, "von früher"), ("orders", 1): CommittedOffset(7)}
    commit(kafka, "billing", dict(before))
    dry = run("offsets", "reset", "--group", "billing", "--topic", "orders", "--to-offset", "9")
    assert dry.returncode == 0, dry.stderr
    assert "3 offsets of 1 group: 6 messages skipped, 0 read again. Nothing was changed" in dry.stdout
    assert not (tables / "snapshots").exists()
    done = run("offsets", "reset", "--group", "billing", "--topic", "orders", "--to-offset", "9", "--execute")
    assert done.returncode == 0, done.stderr
    assert committed(kafka, "billing") == {("orders", number): CommittedOffset(9) for number in range(3)}
    (snapshot,) = (tables / "snapshots").iterdir()
    assert stat.S_IMODE(snapshot.stat().st_mode) == 0o600
    undone = run("offsets", "undo", str(snapshot))
    assert (undone.returncode, committed(kafka, "billing")[("orders", 2)]) == (0, CommittedOffset(9))
    undone = run("offsets", "undo", "--execute")
    assert undone.returncode == 0, undone.stderr
    assert committed(kafka, "billing") == before
    again = run("offsets", "undo", str(snapshot), "--execute")
    assert (again.returncode, again.stdout.splitlines()[-1]) == (0, "There is nothing to do.")
    reported = [(row["kind"], row["status"], json.loads(row["groups"])) for row in journal(tables)]
    assert reported == [(kind, status, ["billing"]) for kind in ("reset", "undo") for status in ("started", "done")]
    assert all(row["user_name"] and row["host"] and row["operation_id"] for row in journal(tables))


def test_undo_is_refused_if_an_offset_moved_since(kafka: EmbeddedKafka, run: Run) -> None:
    commit(kafka, "mover", {("orders", 0): 5, ("orders", 2): 5})
    assert run("offsets", "reset", "--group", "mover", "--all-topics", "--to-latest", "--execute").returncode == 0
    commit(kafka, "mover", {("orders", 2): 19})
    refused = run("offsets", "undo", "--execute")
    assert refused.returncode == 1
    assert (
        "Objection: group 'mover' orders-2: the group has moved since: its committed offset is now 19" in refused.stderr
    )
    assert {place: each.offset for place, each in committed(kafka, "mover").items()} == {
        ("orders", 0): RECORDS,
        ("orders", 2): 19,
    }


def test_a_reset_with_objections_is_refused(kafka: EmbeddedKafka, run: Run) -> None:
    commit(kafka, "careful", {("orders", 1): 7})
    reset = ("offsets", "reset", "--group", "careful")
    outside = run(*reset, "--topic", "orders:1", "--to-offset", "1", "--execute")
    assert outside.returncode == 1
    assert "offset 1 is outside the log (4 to 20): it would become 4" in outside.stderr
    assert committed(kafka, "careful") == {("orders", 1): CommittedOffset(7)}
    despite = run(*reset, "--topic", "orders:1", "--to-offset", "1", "--execute", "--despite", "out-of-range")
    assert (despite.returncode, committed(kafka, "careful")[("orders", 1)].offset) == (0, 4)
    for arguments, reported in [
        (("--topic", "nowhere", "--to-latest"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("--topic", "orders:3", "--to-latest"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("--topic", "orders:0", "--shift-by", "1"), "no committed offset to shift"),
    ]:
        done = run(*reset, *arguments, "--execute")
        assert (done.returncode, reported in done.stderr) == (1, True), done.stderr
    nobody = run("offsets", "reset", "--group", "nobody", "--topic", "orders", "--to-latest", "--execute")
    assert (nobody.returncode, "the group does not exist" in nobody.stderr) == (1, True)
    assert committed(kafka, "nobody") == {}


def test_a_group_with_members_is_not_changed(kafka: EmbeddedKafka, run: Run) -> None:
    commit(kafka, "active", {("orders", 0): 5})
    consumer = joined(kafka.bootstrap_server, "active", "orders")
    commands = [
        ("offsets", "reset", "--group", "active", "--all-topics", "--to-latest"),
        ("groups", "delete", "--group", "active"),
    ]
    for command in commands:
        refused = run(*command, "--execute")
        assert refused.returncode == 1
        assert "it is Stable with 1 members: stop its consumers first" in refused.stderr
    dry = run("offsets", "delete", "--group", "active", "--topic", "orders")
    assert "Note: group 'active' is Stable with 1 members. The coordinator refuses" in dry.stderr
    subscribed = run("offsets", "delete", "--group", "active", "--topic", "orders", "--execute", "--output", "json")
    assert [row["result"] for row in rows(subscribed)] == ["GROUP_SUBSCRIBED_TO_TOPIC"]
    assert (subscribed.returncode, committed(kafka, "active")[("orders", 0)].offset) == (1, 5)
    consumer.close()
    commit(kafka, "idle", {("orders", 0): 5})
    assert run(*commands[0], "--execute").returncode == 0
    assert committed(kafka, "active")[("orders", 0)].offset == RECORDS


def test_deletions_and_their_undo(kafka: EmbeddedKafka, run: Run) -> None:
    before = {
        ("orders", 0): CommittedOffset(5, 0, "kept"),
        ("orders", 1): CommittedOffset(7),
        ("quiet", 0): CommittedOffset(0),
    }
    commit(kafka, "leaving", dict(before))
    deleted = run("offsets", "delete", "--group", "leaving", "--topic", "orders:0", "--execute")
    assert deleted.returncode == 0, deleted.stderr
    assert committed(kafka, "leaving").keys() == {("orders", 1), ("quiet", 0)}
    assert run("offsets", "undo", "--execute").returncode == 0
    assert committed(kafka, "leaving") == before
    deletion = run("groups", "delete", "--group", "leaving", "--execute")
    assert deletion.returncode == 0, deletion.stderr
    assert committed(kafka, "leaving") == {}
    assert run("offsets", "undo", "--execute").returncode == 0
    assert committed(kafka, "leaving") == before
    missing = run("groups", "delete", "--group", "nobody", "--execute")
    assert (missing.returncode, "GROUP_ID_NOT_FOUND" in missing.stderr) == (1, True)


def test_read_only_refuses_to_write(run: Run, kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(kafka, "guarded", {("orders", 0): 5})
    commands = [
        ("offsets", "reset", "--group", "guarded", "--all-topics", "--to-latest"),
        ("offsets", "delete", "--group", "guarded", "--topic", "orders"),
        ("groups", "delete", "--group", "guarded"),
    ]
    for command in commands:
        refused = run(*command, "--execute", "--read-only")
        assert (refused.returncode, "--read-only" in refused.stderr) == (2, True)
        assert run(*command, "--read-only").returncode == 0
    monkeypatch.setenv("OFFSETSTREAM_READ_ONLY", "true")
    monkeypatch.setenv("OFFSETSTREAM_EXECUTE", "true")
    assert run(*commands[0]).returncode == 0
    assert run(*commands[0], "--execute").returncode == 2
    assert committed(kafka, "guarded")[("orders", 0)].offset == 5


def test_nothing_is_changed_when_the_snapshot_cannot_be_written(kafka: EmbeddedKafka, run: Run, tables: Path) -> None:
    commit(kafka, "unsaved", {("orders", 0): 5})
    (tables / "a file").write_text("", "utf-8")
    reset = ("offsets", "reset", "--group", "unsaved", "--all-topics", "--to-latest", "--execute")
    done = run(*reset, "--snapshots", str(tables / "a file" / "below"))
    assert (done.returncode, "Nothing was changed" in done.stderr) == (2, True)
    assert committed(kafka, "unsaved")[("orders", 0)].offset == 5


def test_all_groups_without_objections_are_reset(kafka: EmbeddedKafka, run: Run) -> None:
    """Kafka's tool also resets the other groups, and reports the active one."""
    commit(kafka, "many-1", {("quiet", 0): 0, ("orders", 0): 3})
    commit(kafka, "many-2", {("orders", 2): 4})
    consumer = joined(kafka.bootstrap_server, "many-active", "orders")
    everything = ("offsets", "reset", "--all-groups", "--topic", "orders", "--to-latest", "--output", "json")
    stopped = run(*everything, "--execute")
    assert (stopped.returncode, committed(kafka, "many-2")[("orders", 2)].offset) == (1, 4)
    assert {row["group"] for row in rows(stopped)} >= {"many-1", "many-2", "many-active"}
    done = run(*everything, "--execute", "--skip-objected")
    assert done.returncode == 1  # not all groups were reset
    results = {row["group"]: row["result"] for row in rows(done)}
    assert (results["many-1"], results["many-2"], results["many-active"]) == ("done", "done", "not done")
    assert committed(kafka, "many-2") == {("orders", number): CommittedOffset(RECORDS) for number in range(3)}
    assert committed(kafka, "many-1")[("quiet", 0)] == CommittedOffset(0)
    assert committed(kafka, "many-active") == {}
    consumer.close()


def test_metadata_that_the_brokers_refuse_is_reported(
    kafka: EmbeddedKafka, admin: AdminClient, run: Run, tables: Path
) -> None:
    commit(kafka, "wordy", {("orders", 0): 5, ("orders", 1): 7})
    long = Change("wordy", "orders", 0, CommittedOffset(4, metadata="ä" * 2049), CommittedOffset(5))
    short = Change("wordy", "orders", 1, CommittedOffset(6, metadata="ä" * 2048), CommittedOffset(7))
    cluster_id = str(admin.list_topics(timeout=SECONDS).cluster_id)
    snapshot = Snapshot("0123", "reset", cluster_id, datetime.now(UTC), (long, short))
    path = write_snapshot(tables / "snapshots", snapshot)
    refused = run("offsets", "undo", str(path), "--execute")
    assert (refused.returncode, "its metadata has 4098 bytes, and the brokers allow 4096" in refused.stderr) == (
        1,
        True,
    )
    assert committed(kafka, "wordy") == {("orders", 0): CommittedOffset(5), ("orders", 1): CommittedOffset(7)}


def test_a_snapshot_of_another_cluster_is_refused(kafka: EmbeddedKafka, run: Run, tables: Path) -> None:
    snapshot = Snapshot("0123", "reset", "another", datetime.now(UTC), ())
    path = write_snapshot(tables / "snapshots", snapshot)
    refused = run("offsets", "undo", str(path), "--execute")
    assert (refused.returncode, "is of cluster another" in refused.stderr) == (1, True)


@pytest.mark.parametrize("group", ['=cmd|"x", y', "日本 グループ", "<b>\u202egroup</b>", "g" * 3000])
def test_groups_of_any_name(kafka: EmbeddedKafka, run: Run, group: str) -> None:
    commit(kafka, group, {("orders", 0): CommittedOffset(5, metadata='"; DROP')})
    reset = ("offsets", "reset", "--group", group, "--all-topics", "--to-latest", "--execute")
    done = run(*reset, "--output", "json")
    assert [(row["group"], row["result"]) for row in rows(done)] == [(group, "done")]
    assert run("offsets", "undo", "--execute").returncode == 0
    assert committed(kafka, group) == {("orders", 0): CommittedOffset(5, metadata='"; DROP')}


def test_a_reset_needs_a_writable_output_file(kafka: EmbeddedKafka, run: Run, tables: Path) -> None:
    commit(kafka, "telling", {("orders", 0): 5})
    shift = ("offsets", "reset", "--group", "telling", "--topic", "orders:0", "--shift-by", "1", "--execute")
    refused = run(*shift, "--file", str(tables / "nowhere" / "plan.txt"))
    assert (refused.returncode, "cannot write" in refused.stderr) == (2, True)
    assert committed(kafka, "telling")[("orders", 0)].offset == 5
    assert not (tables / "snapshots").exists()
    full = run(*shift, "--file", "/dev/full")  # fails only on writing, after the reset
    assert (full.returncode, committed(kafka, "telling")[("orders", 0)].offset) == (1, 6)
    assert "Done: 1 offset of 1 group: 1 message skipped" in full.stderr
    assert "No space left on device" in full.stderr


def test_a_plan_reports_what_it_does_not_use_of_a_file(kafka: EmbeddedKafka, run: Run, tmp_path: Path) -> None:
    commit(kafka, "partly", {("orders", 0): 5, ("orders", 1): 5})
    file = tmp_path / "offsets.csv"
    heading, time = "group,topic,partition,offset,timestamp_ms,read_again", 1_763_600_000_000
    lines = [f"partly,orders,0,7,{time},0", f"partly,orders,1,6,{time},0", f"other,orders,0,1,{time},0"]
    file.write_text("\n".join([heading, *lines, ""]), "utf-8")
    reset = ("offsets", "reset", "--group", "partly", "--from-file", str(file))
    done = run(*reset, "--topic", "orders:0", "--output", "json")
    assert [(row["partition"], row["new_offset"]) for row in rows(done)] == [(0, 7)]
    assert [line.partition(str(file))[2] for line in done.stderr.splitlines() if str(file) in line] == [
        " also has offsets of group other: they are not used",
        " are not used",  # the columns of times
        " also has offsets of partition orders-1: they are not used",
    ]


def test_a_file_of_another_tool_is_refused(kafka: EmbeddedKafka, run: Run, tmp_path: Path) -> None:
    """Group, topic, partition, source offset, target offset, time: the source offset was planned."""
    commit(kafka, "foreign", {("orders", 0): 5})
    file = tmp_path / "offsets.csv"
    file.write_text("foreign,orders,0,7,6,1763600000000\n", "utf-8")
    done = run("offsets", "reset", "--group", "foreign", "--from-file", str(file), "--execute")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "line 1 has 6 fields; expected [group,]topic,partition,offset" in done.stderr
    assert committed(kafka, "foreign") == {("orders", 0): CommittedOffset(5)}


def test_names_missing_from_a_file_or_snapshot_are_refused(kafka: EmbeddedKafka, run: Run, tmp_path: Path) -> None:
    commit(kafka, "named", {("orders", 0): 5})
    file = tmp_path / "offsets.csv"
    file.write_text("\ufeffnamed,orders,0,7\n", "utf-8")  # as spreadsheets write it
    reset = ("offsets", "reset", "--from-file", str(file), "--all-groups", "--execute")
    for topic, reported in (("order", "order"), ("orders:0,1", "orders-1")):
        wrong = run(*reset, "--topic", topic)
        assert wrong.returncode == 1
        assert f"There is no offset for {reported}, only for orders. Correct --topic" in wrong.stderr
    assert run(*reset).returncode == 0
    assert committed(kafka, "named") == {("orders", 0): CommittedOffset(7)}
    wrong = run("offsets", "undo", "--topic", "quiet", "--execute")
    assert (wrong.returncode, "There is no offset for quiet" in wrong.stderr) == (1, True)
    file.write_text("named,orders,2147483648,5\n", "utf-8")
    wrong = run(*reset)
    assert (wrong.returncode, "line 1: partition 2147483648 is too large" in wrong.stderr) == (2, True)
