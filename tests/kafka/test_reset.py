"""Committed offsets are reset, deleted and brought back on a live cluster, and Kafka's own tool plans the same."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from offsetstream import CommittedOffset, commit_offsets, fetch_offsets
from offsetstream.cluster.connection import QUIET
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.embedded.tools import CONSUMER_GROUPS, run_tool
from offsetstream.operations.plan import Change
from offsetstream.operations.snapshot import Snapshot, write_snapshot
from offsetstream.tables.create import create_tables
from offsetstream.tables.path_store import PathStore
from testkit.command import Done, within

RECORDS, STEP_MS = 20, 60_000
FIRST = datetime(2026, 11, 20, 3, tzinfo=UTC)
Run = Callable[..., Done]


def moment(record: int) -> datetime:
    """When a record of the topics was written, by its timestamp."""
    return FIRST + timedelta(milliseconds=record * STEP_MS)


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as kafka:
        yield kafka


@pytest.fixture(scope="module")
def admin(kafka: EmbeddedKafka) -> AdminClient:
    """Knows orders, of three partitions of which the second has lost its beginning, and quiet, which is empty."""
    admin = admin_client(kafka.bootstrap_server)
    for made in admin.create_topics(
        [NewTopic("orders", 3, config={"retention.ms": "-1"}), NewTopic("quiet", 1)]
    ).values():
        made.result(30)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_server}, logger=QUIET)
    for number in range(3 * RECORDS):
        at = int(moment(number // 3).timestamp() * 1000)
        producer.produce("orders", str(number // 3), partition=number % 3, timestamp=at)
    assert producer.flush(30) == 0
    for done in admin.delete_records([TopicPartition("orders", 1, 4)]).values():
        done.result(30)
    return admin


@pytest.fixture
def tables(kafka: EmbeddedKafka, admin: AdminClient, tmp_path: Path) -> Path:
    """Tables of the cluster, without a row."""
    cluster_id = admin.list_topics(timeout=30).cluster_id
    create_tables(PathStore(str(tmp_path / "tables")), str(cluster_id), "new")
    return tmp_path / "tables"


@pytest.fixture
def run(kafka: EmbeddedKafka, tables: Path) -> Run:
    def command(*arguments: str) -> Done:
        return within(*arguments, "--bootstrap-server", kafka.bootstrap_server, "--tables", str(tables))

    return command


def rows(done: Done) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def commit(kafka: EmbeddedKafka, group: str, offsets: dict[tuple[str, int], int | CommittedOffset]) -> None:
    assert commit_offsets(kafka.bootstrap_server, group, offsets) == dict.fromkeys(offsets)


def committed(kafka: EmbeddedKafka, group: str) -> dict[tuple[str, int], CommittedOffset]:
    return fetch_offsets(kafka.bootstrap_server, group)


def active_consumer(kafka: EmbeddedKafka, group: str) -> Consumer:
    """A member of the group that reads orders and commits nothing."""
    config = {"bootstrap.servers": kafka.bootstrap_server, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer(config, logger=QUIET)
    consumer.subscribe(["orders"])
    while not consumer.assignment():
        consumer.poll(0.1)
    return consumer


def journal(tables: Path) -> list[dict[str, Any]]:
    query = "SELECT * FROM operations ORDER BY happened_at"
    return rows(within("sql", query, "--output", "json", "--tables", str(tables)))


def planned_by_kafka(server: str, arguments: list[str]) -> set[tuple[str, str, int, int]]:
    """What kafka-consumer-groups says it would do: GROUP TOPIC PARTITION NEW-OFFSET, below a heading."""
    told = run_tool(CONSUMER_GROUPS, ["--bootstrap-server", server, "--reset-offsets", *arguments, "--dry-run"])
    lines = [line.split() for line in told.splitlines()]
    heading = next(at for at, line in enumerate(lines) if line[:1] == ["GROUP"])
    found = [line for line in lines[heading + 1 :] if line]
    return {(group, topic, int(partition), int(offset)) for group, topic, partition, offset in found}


@pytest.mark.parametrize(
    "options",
    [
        ["--topic", "orders", "--to-earliest"],
        ["--topic", "orders", "--topic", "quiet", "--to-latest"],
        ["--topic", "orders", "--to-current"],
        ["--topic", "orders:0,2", "--to-offset", "3"],
        ["--topic", "orders", "--to-offset", "3"],
        ["--all-topics", "--to-offset", "1000"],
        ["--all-topics", "--shift-by", "4"],
        ["--all-topics", "--shift-by", "-6"],
        ["--topic", "orders", "--topic", "quiet", "--to-datetime", f"{moment(9):%Y-%m-%dT%H:%M:%S}.000"],
        ["--topic", "orders", "--to-datetime", f"{moment(10) - timedelta(seconds=1):%Y-%m-%dT%H:%M:%S}.000"],
        ["--topic", "orders", "--to-datetime", "2026-01-01T00:00:00.000"],
        ["--topic", "orders", "--by-duration", "PT1M"],
        ["--topic", "orders", "--by-duration", "P9999D"],
        ["--from-file", "FILE"],
    ],
    ids=" ".join,
)
def test_the_plan_is_that_of_kafkas_tool(
    kafka: EmbeddedKafka, admin: AdminClient, run: Run, tmp_path: Path, options: list[str]
) -> None:
    commit(kafka, "differential", {("orders", 0): 5, ("orders", 1): 7})
    file = tmp_path / "offsets.csv"
    file.write_text("orders,0,2\norders,1,1\norders,2,999\n", "utf-8")
    wanted = [str(file) if each == "FILE" else each for each in options]
    theirs = planned_by_kafka(kafka.bootstrap_server, ["--group", "differential", *wanted])
    assert theirs
    done = run("offsets", "reset", "--group", "differential", *wanted, "--output", "json")
    ours = {(row["group"], row["topic"], row["partition"], row["new_offset"]) for row in rows(done)}
    assert ours == theirs
    assert committed(kafka, "differential") == {("orders", 0): CommittedOffset(5), ("orders", 1): CommittedOffset(7)}


@pytest.mark.parametrize(
    "options",
    [
        ["--all-topics", "--to-earliest"],
        ["--topic", "orders:1,2", "--topic", "quiet", "--to-latest"],
        ["--all-topics", "--shift-by", "-3"],
        ["--all-topics", "--to-current"],
        ["--topic", "orders:1", "--to-datetime", f"{moment(9):%Y-%m-%dT%H:%M:%S}.000"],
        ["--all-topics", "--by-duration", "P9999D"],
        ["--from-file", "FILE"],
    ],
    ids=" ".join,
)
def test_the_plan_of_several_groups_is_that_of_kafkas_tool(
    kafka: EmbeddedKafka, admin: AdminClient, run: Run, tmp_path: Path, options: list[str]
) -> None:
    commit(kafka, "several 1", {("orders", 1): 2})  # which is in the log no longer
    commit(kafka, "several-2", {("orders", 0): 3, ("orders", 1): 20, ("quiet", 0): 0})
    file = tmp_path / "offsets.csv"
    file.write_text("several 1,orders,1,9\nseveral-2,orders,1,1\nseveral-2,quiet,0,5\n", "utf-8")
    wanted = [str(file) if each == "FILE" else each for each in options]
    both = ["--group", "several 1", "--group", "several-2", *wanted]
    # A group's name may have a space in it, so columns are counted from the right.
    told = run_tool(
        CONSUMER_GROUPS, ["--bootstrap-server", kafka.bootstrap_server, "--reset-offsets", *both, "--dry-run"]
    )
    theirs = {tuple(line.rsplit(maxsplit=3)) for line in told.splitlines() if line.startswith("several")}
    assert {line[0].strip() for line in theirs} == {"several 1", "several-2"}
    done = run("offsets", "reset", *both, "--output", "json")
    ours = {tuple(str(row[each]) for each in ("group", "topic", "partition", "new_offset")) for row in rows(done)}
    assert ours == theirs


def test_a_reset_and_its_undoing(kafka: EmbeddedKafka, run: Run, tables: Path) -> None:
    before = {("orders", 0): CommittedOffset(5, 0, "von früher"), ("orders", 1): CommittedOffset(7)}
    commit(kafka, "billing", dict(before))
    dry = run("offsets", "reset", "--group", "billing", "--topic", "orders", "--to-offset", "9")
    assert dry.returncode == 0, dry.stderr
    assert "3 offsets of 1 group: 6 messages skipped, 0 read again. Nothing was done" in dry.stdout
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
    assert (again.returncode, again.stdout.splitlines()[-1]) == (0, "There is nothing to be done.")
    told = [(row["kind"], row["status"], json.loads(row["groups"])) for row in journal(tables)]
    assert told == [(kind, status, ["billing"]) for kind in ("reset", "undo") for status in ("started", "done")]
    assert all(row["user_name"] and row["host"] and row["operation_id"] for row in journal(tables))


def test_before_1970_is_the_start_of_the_log(kafka: EmbeddedKafka, run: Run) -> None:
    commit(kafka, "historian", {("orders", 1): 7})
    reset = ("offsets", "reset", "--group", "historian", "--topic", "orders:1", "--to-datetime", "1960-01-01")
    back = run(*reset, "--execute")
    assert (back.returncode, committed(kafka, "historian")) == (0, {("orders", 1): CommittedOffset(4)}), back.stderr


def test_nobody_is_undone_who_has_moved(kafka: EmbeddedKafka, run: Run) -> None:
    commit(kafka, "mover", {("orders", 0): 5, ("orders", 2): 5})
    assert run("offsets", "reset", "--group", "mover", "--all-topics", "--to-latest", "--execute").returncode == 0
    commit(kafka, "mover", {("orders", 2): 19})
    refused = run("offsets", "undo", "--execute")
    assert refused.returncode == 1
    assert "Objection: group 'mover' orders-2: the group has moved since: 19 is committed" in refused.stderr
    assert {place: each.offset for place, each in committed(kafka, "mover").items()} == {
        ("orders", 0): RECORDS,
        ("orders", 2): 19,
    }


def test_what_speaks_against_a_reset(kafka: EmbeddedKafka, run: Run) -> None:
    commit(kafka, "careful", {("orders", 1): 7})
    reset = ("offsets", "reset", "--group", "careful")
    outside = run(*reset, "--topic", "orders:1", "--to-offset", "1", "--execute")
    assert outside.returncode == 1
    assert "1 is not in the log, which begins at 4 and ends at 20: it would become 4" in outside.stderr
    assert committed(kafka, "careful") == {("orders", 1): CommittedOffset(7)}
    despite = run(*reset, "--topic", "orders:1", "--to-offset", "1", "--execute", "--despite", "out-of-range")
    assert (despite.returncode, committed(kafka, "careful")[("orders", 1)].offset) == (0, 4)
    for arguments, told in [
        (("--topic", "nowhere", "--to-latest"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("--topic", "orders:3", "--to-latest"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("--topic", "orders:0", "--shift-by", "1"), "nothing is committed that could be shifted"),
    ]:
        done = run(*reset, *arguments, "--execute")
        assert (done.returncode, told in done.stderr) == (1, True), done.stderr
    nobody = run("offsets", "reset", "--group", "nobody", "--topic", "orders", "--to-latest", "--execute")
    assert (nobody.returncode, "there is no such group" in nobody.stderr) == (1, True)
    assert committed(kafka, "nobody") == {}


def test_a_group_with_members_is_left_alone(kafka: EmbeddedKafka, run: Run) -> None:
    commit(kafka, "active", {("orders", 0): 5})
    consumer = active_consumer(kafka, "active")
    commands = [
        ("offsets", "reset", "--group", "active", "--all-topics", "--to-latest"),
        ("groups", "delete", "--group", "active"),
    ]
    for command in commands:
        refused = run(*command, "--execute")
        assert refused.returncode == 1
        assert "it is Stable with 1 members: stop its consumers first" in refused.stderr
    dry = run("offsets", "delete", "--group", "active", "--topic", "orders")
    assert "Note: group 'active' is Stable with 1 members: its coordinator refuses what they subscribe to" in dry.stderr
    subscribed = run("offsets", "delete", "--group", "active", "--topic", "orders", "--execute", "--output", "json")
    assert [row["result"] for row in rows(subscribed)] == ["GROUP_SUBSCRIBED_TO_TOPIC"]
    assert (subscribed.returncode, committed(kafka, "active")[("orders", 0)].offset) == (1, 5)
    consumer.close()
    commit(kafka, "idle", {("orders", 0): 5})
    assert run(*commands[0], "--execute").returncode == 0
    assert committed(kafka, "active")[("orders", 0)].offset == RECORDS


def test_deletions_and_their_undoing(kafka: EmbeddedKafka, run: Run) -> None:
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
    gone = run("groups", "delete", "--group", "leaving", "--execute")
    assert gone.returncode == 0, gone.stderr
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


def test_a_snapshot_that_cannot_be_written_stops_everything(kafka: EmbeddedKafka, run: Run, tables: Path) -> None:
    commit(kafka, "unsaved", {("orders", 0): 5})
    (tables / "a file").write_text("", "utf-8")
    reset = ("offsets", "reset", "--group", "unsaved", "--all-topics", "--to-latest", "--execute")
    done = run(*reset, "--snapshots", str(tables / "a file" / "below"))
    assert (done.returncode, "nothing was done" in done.stderr) == (2, True)
    assert committed(kafka, "unsaved")[("orders", 0)].offset == 5


def test_all_groups_but_those_that_are_objected_to(kafka: EmbeddedKafka, run: Run) -> None:
    """Kafka's tool resets the others, too; of one that is active it says so."""
    commit(kafka, "many-1", {("quiet", 0): 0, ("orders", 0): 3})
    commit(kafka, "many-2", {("orders", 2): 4})
    consumer = active_consumer(kafka, "many-active")
    everything = ("offsets", "reset", "--all-groups", "--topic", "orders", "--to-latest", "--output", "json")
    stopped = run(*everything, "--execute")
    assert (stopped.returncode, committed(kafka, "many-2")[("orders", 2)].offset) == (1, 4)
    assert {row["group"] for row in rows(stopped)} >= {"many-1", "many-2", "many-active"}
    done = run(*everything, "--execute", "--skip-objected")
    assert done.returncode == 1  # not all of them
    results = {row["group"]: row["result"] for row in rows(done)}
    assert (results["many-1"], results["many-2"], results["many-active"]) == ("done", "done", "not done")
    assert committed(kafka, "many-2") == {("orders", number): CommittedOffset(RECORDS) for number in range(3)}
    assert committed(kafka, "many-1")[("quiet", 0)] == CommittedOffset(0)
    assert committed(kafka, "many-active") == {}
    consumer.close()


def test_metadata_that_the_brokers_do_not_take(
    kafka: EmbeddedKafka, admin: AdminClient, run: Run, tables: Path
) -> None:
    commit(kafka, "wordy", {("orders", 0): 5, ("orders", 1): 7})
    long = Change("wordy", "orders", 0, CommittedOffset(4, metadata="ä" * 2049), CommittedOffset(5))
    short = Change("wordy", "orders", 1, CommittedOffset(6, metadata="ä" * 2048), CommittedOffset(7))
    cluster_id = str(admin.list_topics(timeout=30).cluster_id)
    kept = Snapshot("0123", "reset", cluster_id, datetime.now(UTC), (long, short))
    path = write_snapshot(tables / "snapshots", kept)
    refused = run("offsets", "undo", str(path), "--execute")
    assert (refused.returncode, "its metadata has 4098 bytes, and the brokers take 4096" in refused.stderr) == (1, True)
    assert committed(kafka, "wordy") == {("orders", 0): CommittedOffset(5), ("orders", 1): CommittedOffset(7)}


def test_a_snapshot_of_another_cluster_is_refused(kafka: EmbeddedKafka, run: Run, tables: Path) -> None:
    kept = Snapshot("0123", "reset", "another", datetime.now(UTC), ())
    path = write_snapshot(tables / "snapshots", kept)
    refused = run("offsets", "undo", str(path), "--execute")
    assert (refused.returncode, "is of the cluster another" in refused.stderr) == (1, True)


@pytest.mark.parametrize("group", ['=cmd|"x", y', "日本 グループ", "<b>\u202egroup</b>", "g" * 3000])
def test_groups_of_any_name(kafka: EmbeddedKafka, run: Run, group: str) -> None:
    commit(kafka, group, {("orders", 0): CommittedOffset(5, metadata='"; DROP')})
    reset = ("offsets", "reset", "--group", group, "--all-topics", "--to-latest", "--execute")
    done = run(*reset, "--output", "json")
    assert [(row["group"], row["result"]) for row in rows(done)] == [(group, "done")]
    assert run("offsets", "undo", "--execute").returncode == 0
    assert committed(kafka, group) == {("orders", 0): CommittedOffset(5, metadata='"; DROP')}


def test_what_cannot_be_told_is_not_done(kafka: EmbeddedKafka, run: Run, tables: Path) -> None:
    commit(kafka, "telling", {("orders", 0): 5})
    shift = ("offsets", "reset", "--group", "telling", "--topic", "orders:0", "--shift-by", "1", "--execute")
    refused = run(*shift, "--file", str(tables / "nowhere" / "plan.txt"))
    assert (refused.returncode, "cannot write" in refused.stderr) == (2, True)
    assert committed(kafka, "telling")[("orders", 0)].offset == 5
    assert not (tables / "snapshots").exists()
    full = run(*shift, "--file", "/dev/full")  # which tells only when it is written to
    assert (full.returncode, committed(kafka, "telling")[("orders", 0)].offset) == (1, 6)
    assert "Done: 1 offset of 1 group: 1 message skipped" in full.stderr
    assert "No space left on device" in full.stderr


def test_names_that_a_file_or_a_snapshot_does_not_have(kafka: EmbeddedKafka, run: Run, tmp_path: Path) -> None:
    commit(kafka, "named", {("orders", 0): 5})
    file = tmp_path / "offsets.csv"
    file.write_text("\ufeffnamed,orders,0,7\n", "utf-8")  # as spreadsheets write it
    reset = ("offsets", "reset", "--from-file", str(file), "--all-groups", "--execute")
    for topic, told in (("order", "order"), ("orders:0,1", "orders-1")):
        wrong = run(*reset, "--topic", topic)
        assert wrong.returncode == 1
        assert f"there is no offset of {told} to go to, but of orders: correct --topic" in wrong.stderr
    assert run(*reset).returncode == 0
    assert committed(kafka, "named") == {("orders", 0): CommittedOffset(7)}
    wrong = run("offsets", "undo", "--topic", "quiet", "--execute")
    assert (wrong.returncode, "there is no offset of quiet to go to" in wrong.stderr) == (1, True)
    file.write_text("named,orders,2147483648,5\n", "utf-8")
    wrong = run(*reset)
    assert (wrong.returncode, "line 1 has the partition 2147483648" in wrong.stderr) == (2, True)
