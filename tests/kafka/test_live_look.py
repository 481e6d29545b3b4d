"""Live queries to three brokers while leaders move, brokers die or fall silent, and coordinators are missing."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions

from offsetstream import commit_offsets
from offsetstream.cluster.client import Cluster
from offsetstream.cluster.metadata import MetadataCache
from offsetstream.cluster.records import SILENT, read_at
from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from testkit.live_logs import create_topic, numbered, write
from testkit.processes import Done, within
from testkit.tables import append_rows, new_tables
from testkit.waiting import SECONDS, await_
from tests.kafka.test_topics_describe import in_tool_format, rows_of_tool

pytestmark = pytest.mark.long

REPLICATED, ALONE, LOST = "replicated", "alone", 2
ON_LOST, ON_ANOTHER = (ALONE, 0), (ALONE, 1)


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=3, properties={"offsets.topic.replication.factor": "1"}) as kafka:
        server = kafka.bootstrap_server
        create_topic(server, REPLICATED, [[1, 2, 3]])
        create_topic(server, ALONE, [[LOST], [1]])
        for topic, partition in ((REPLICATED, 0), ON_LOST, ON_ANOTHER):
            write(server, topic, *numbered(10), partition=partition)
        yield kafka


@pytest.fixture
def server(kafka: EmbeddedKafka) -> str:
    """Wait until all three brokers serve and every partition has a leader."""
    for broker in {1, 2, 3} - set(kafka.pids):
        kafka.start_broker(broker)
    await_(lambda: len(admin_client(kafka.bootstrap_server).list_topics(timeout=SECONDS).brokers) == 3)
    await_(lambda: None not in leaders(kafka.bootstrap_server, ALONE).values())
    return kafka.bootstrap_server


@contextmanager
def silent(kafka: EmbeddedKafka, broker: int) -> Iterator[None]:
    """Let a broker keep its connections open but answer nothing."""
    os.kill(kafka.pids[broker], signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(kafka.pids[broker], signal.SIGCONT)


def leaders(server: str, topic: str) -> dict[int, int | None]:
    return Cluster(server).leaders(topic)


def peek(server: str, *options: str) -> Done:
    return within("peek", "--bootstrap-server", server, *options)


def make_group_on(server: str, broker: int) -> str:
    """Return a group with committed offsets whose offsets partition only this broker has."""
    commit_offsets(server, "first", {ON_ANOTHER: 0})  # creates the offsets topic
    led = {number for number, leader in leaders(server, OFFSETS_TOPIC).items() if leader == broker}
    group = next(name for number in range(1000) if partition_for(name := f"group-{number}", 50) in led)
    assert set(commit_offsets(server, group, {ON_LOST: 3, ON_ANOTHER: 4}).values()) == {None}
    return group


@pytest.mark.parametrize("command", ["peek", "lag"])
def test_a_killed_leader_is_replaced(kafka: EmbeddedKafka, server: str, command: str) -> None:
    first = leaders(server, REPLICATED)[0]
    assert first is not None
    group = make_group_on(server, next(broker for broker in (1, 2, 3) if broker != first))
    assert commit_offsets(server, group, {(REPLICATED, 0): 7}) == {(REPLICATED, 0): None}
    options = {
        "peek": ("--topic", REPLICATED, "--partition", "0", "--offset", "7"),
        "lag": ("--exact", "--group", group, "--topic", REPLICATED),
    }
    kafka.stop_broker(first, kill=True)
    done = within(command, *options[command], "--timeout", "60", "--bootstrap-server", server, "--output", "json")
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)[0]
    assert row.get("next_offset", row.get("offset")) == 7
    assert leaders(server, REPLICATED)[0] != first


def test_a_leader_that_falls_silent_during_a_read_is_replaced(kafka: EmbeddedKafka, server: str) -> None:
    first = leaders(server, REPLICATED)[0]
    assert first is not None
    with silent(kafka, first):
        found = read_at(server, {}, {(REPLICATED, 0): 7}, 3, timeout=SECONDS)[REPLICATED, 0]
        assert [record.offset for record in found.records] == [7, 8, 9], found
        assert leaders(server, REPLICATED)[0] != first


def test_a_silent_broker_affects_only_its_own_partitions(kafka: EmbeddedKafka, server: str) -> None:
    with silent(kafka, LOST):
        found = read_at(server, {}, {ON_LOST: 3, ON_ANOTHER: 4}, 1, timeout=10)
        assert [record.offset for record in found[ON_ANOTHER].records] == [4]
        assert (found[ON_LOST].records, found[ON_LOST].error) == ([], SILENT)


def test_a_partition_without_leader_does_not_hide_the_groups_others(kafka: EmbeddedKafka, server: str) -> None:
    group = make_group_on(server, 1)
    kafka.stop_broker(LOST, kill=True)
    named = ("--group", group, "--topic", ALONE, "--timeout", "15")
    done = within("lag", "--exact", "--bootstrap-server", server, *named, "--output", "json")
    lost, other = json.loads(done.stdout)
    assert (done.returncode, other["next_offset"], other["error"]) == (3, 4, None)
    assert lost["error"] in {"LEADER_NOT_AVAILABLE", "REQUEST_TIMED_OUT"}
    await_(lambda: leaders(server, ALONE)[0] is None)
    shown = peek(server, *named)
    assert (shown.returncode, f"Error: {ALONE}-0: LEADER_NOT_AVAILABLE" in shown.stderr) == (3, True), shown.stderr
    assert [line.split()[:3] for line in shown.stdout.splitlines()[1:3]] == [[ALONE, "1", "4"], [ALONE, "1", "5"]]


@pytest.mark.nightly
def test_a_missing_coordinator_does_not_hide_other_groups(kafka: EmbeddedKafka, server: str) -> None:
    stranded, available = make_group_on(server, LOST), make_group_on(server, 1)
    kafka.stop_broker(LOST, kill=True)
    await_(lambda: leaders(server, ALONE)[0] is None)
    named = ("--group", stranded, "--group", available)
    done = within("lag", "--exact", *named, "--bootstrap-server", server, "--timeout", "10", "--output", "json")
    rows = {(row["group"], row["partition"]): row for row in json.loads(done.stdout)}
    assert done.returncode == 3
    assert rows[stranded, None]["error"] == "COORDINATOR_NOT_AVAILABLE"
    assert rows[available, 1]["next_offset"] == 4
    refused = peek(server, "--group", stranded)
    assert (refused.returncode, "COORDINATOR_NOT_AVAILABLE" in refused.stderr) == (3, True), refused.stderr


def test_topics_describe_equals_kafkas_tool_after_the_loss_of_a_broker(kafka: EmbeddedKafka, server: str) -> None:
    kafka.stop_broker(LOST)
    await_(lambda: leaders(server, ALONE)[0] is None)
    done = within("topics", "describe", "--bootstrap-server", server, "--output", "json")
    found: list[dict[str, Any]] = json.loads(done.stdout)
    assert done.returncode == 3
    tool_rows = rows_of_tool(server)
    assert {place: each for place, each in in_tool_format(found).items() if place != ON_LOST} == {
        place: each for place, each in tool_rows.items() if place != ON_LOST
    }
    (lost,) = [row for row in found if (row["topic"], row["partition"]) == ON_LOST]
    assert (lost["leader"], lost["error"], lost["replicas"]) == (None, "LEADER_NOT_AVAILABLE", [LOST])
    (replicated,) = [row for row in found if row["topic"] == REPLICATED]
    assert LOST not in replicated["in_sync_replicas"]


def test_groups_describe_names_partitions_without_leader(kafka: EmbeddedKafka, server: str, tmp_path: Path) -> None:
    group = make_group_on(server, 1)
    tables = write_tables(server, tmp_path / "tables")
    group_row = {"group_id": group, "offsets_partition": partition_for(group, 50), "in_coordinator_partition": True}
    append_rows(tables, "groups", [group_row | {"group_type": "Classic", "state": "Empty", "member_count": 0}])
    commits = [(ON_LOST, 3), (ON_ANOTHER, 4), (("never-there", 0), 5)]
    rows = [group_row | {"topic": place[0], "partition": place[1], "committed_offset": at} for place, at in commits]
    append_rows(tables, "committed_offsets", rows)
    kafka.stop_broker(LOST)
    await_(lambda: leaders(server, ALONE)[0] is None)

    options = ("groups", "describe", "--group", group, "--bootstrap-server", server, "--tables", str(tables))
    done = within(*options, "--output", "json")
    shown = ("topic", "partition", "current_offset", "log_end_offset", "lag", "note")
    assert [tuple(row[name] for name in shown) for row in json.loads(done.stdout)] == [
        (*ON_LOST, 3, None, None, "no end: LEADER_NOT_AVAILABLE"),
        (*ON_ANOTHER, 4, 10, 6, None),
        ("never-there", 0, 5, None, None, "no end: UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    assert done.returncode == 3, done.stderr
    text = within(*options)
    assert (text.returncode, text.stdout.split().count("LEADER_NOT_AVAILABLE")) == (3, 1), text.stderr


def test_the_cache_updates_when_an_error_shows_that_it_is_stale(kafka: EmbeddedKafka, server: str) -> None:
    cache = MetadataCache(server)

    def are_in_sync() -> bool:
        cache.refresh()
        return cache.known[REPLICATED].partitions[0].in_sync_replicas == (1, 2, 3)

    await_(are_in_sync)
    before = cache.partition(REPLICATED, 0)
    assert before is not None
    assert before.leader in before.in_sync_replicas
    assert before.replicas == (1, 2, 3)
    kafka.stop_broker(int(str(before.leader)))
    await_(lambda: leaders(server, REPLICATED)[0] not in {None, before.leader})
    assert cache.partition(REPLICATED, 0) == before  # no error has marked it stale
    assert not cache.told(REPLICATED, "TOPIC_AUTHORIZATION_FAILED")
    assert cache.partition(REPLICATED, 0) == before
    assert cache.told(REPLICATED, "NOT_LEADER_OR_FOLLOWER")
    after = cache.partition(REPLICATED, 0)
    assert after is not None
    assert after.leader not in {None, before.leader}
    assert (after.leader_epoch or 0) > (before.leader_epoch or 0)
    assert before.leader not in after.in_sync_replicas


def test_the_cache_drops_deleted_topics_and_learns_new_ones(server: str) -> None:
    admin, cache = admin_client(server), MetadataCache(server)

    def is_gone() -> bool:
        cache.refresh()
        return "passing" not in cache.known

    create_topic(server, "passing", [[1]])
    await_(lambda: cache.topic("passing") is not None)  # each broker learns of it at its own time
    first = cache.topic("passing")
    assert first is not None
    assert cache.partition("passing", 1) is None
    admin.create_partitions([NewPartitions("passing", 2)])["passing"].result(SECONDS)
    await_(lambda: cache.partition("passing", 1) is not None)
    admin.delete_topics(["passing"])["passing"].result(SECONDS)
    await_(is_gone)
    assert REPLICATED in cache.known
    create_topic(server, "passing", [[1]])
    await_(lambda: cache.topic("passing") is not None)
    again = cache.topic("passing")
    assert again is not None
    assert again.topic_id != first.topic_id
    assert set(again.partitions) == {0}


def write_tables(server: str, folder: Path) -> Path:
    """Write tables in which each offsets partition has its current leader as coordinator."""
    new_tables(folder, cluster_id=Cluster(server).cluster_id())
    rows = [
        {"offsets_partition": number, "coordinator_id": leader, "coordinator_available": True, "load_state": "OWNED"}
        for number, leader in leaders(server, OFFSETS_TOPIC).items()
    ]
    append_rows(folder, "offsets_partitions", rows)
    return folder


def coordinator(server: str, tables: Path, *options: str) -> Done:
    return within("coordinator", "--bootstrap-server", server, "--tables", str(tables), *options, "--output", "json")


def test_hash_metadata_and_broker_agree_on_the_coordinator(server: str, tmp_path: Path) -> None:
    group = make_group_on(server, LOST)
    tables = write_tables(server, tmp_path / "tables")
    done = coordinator(server, tables, "--group", group, "--group", "never-there")
    assert done.returncode == 0, done.stderr
    row, other = json.loads(done.stdout)
    names = ("coordinator_id", "cluster_coordinator_id", "cluster_leader_id", "agrees", "differs", "error")
    assert [row[name] for name in names] == [LOST, LOST, LOST, True, False, None]
    assert row["offsets_partition"] == row["cluster_offsets_partition"] == partition_for(group, 50)
    assert (other["agrees"], other["cluster_leader_id"]) == (
        True,
        leaders(server, OFFSETS_TOPIC)[partition_for("never-there", 50)],
    )


def test_the_command_waits_for_a_missing_coordinator(kafka: EmbeddedKafka, server: str, tmp_path: Path) -> None:
    group, available = make_group_on(server, LOST), make_group_on(server, 1)
    tables = write_tables(server, tmp_path / "tables")
    kafka.stop_broker(LOST)
    await_(lambda: leaders(server, ALONE)[0] is None)
    done = coordinator(server, tables, "--group", group, "--group", available, "--timeout", "4")
    assert done.returncode == 3
    assert f"COORDINATOR_NOT_AVAILABLE: no broker coordinates group '{group}'" in done.stderr
    unavailable, other = json.loads(done.stdout)
    assert (unavailable["error"], unavailable["cluster_leader_id"], unavailable["agrees"]) == (
        "COORDINATOR_NOT_AVAILABLE",
        None,
        None,
    )
    assert (other["error"], other["cluster_coordinator_id"]) == (None, 1)

    starting = Timer(1, kafka.start_broker, (LOST,))
    starting.start()
    done = coordinator(server, tables, "--group", group, "--timeout", "90")
    starting.join()
    (back,) = json.loads(done.stdout)
    assert (done.returncode, back["cluster_coordinator_id"], back["agrees"]) == (0, LOST, True), done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("partitions", "--blocked"),
        pytest.param(("peek", "--topic", REPLICATED, "--partition", "0", "--latest"), marks=pytest.mark.nightly),
        pytest.param(("lag", "--exact", "--group", "nobody"), marks=pytest.mark.nightly),
        pytest.param(("topics", "describe"), marks=pytest.mark.nightly),
    ],
)
def test_no_answer_from_any_broker_is_one_line(command: tuple[str, ...]) -> None:
    done = within(*command, "--bootstrap-server", "127.0.0.1:1")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (3, "", 1)
