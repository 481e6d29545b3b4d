"""After every phase of a real workload the tables equal the cluster's own answers."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from offsetstream.demo.topics import commit_plainly
from offsetstream.demo.workload import Workload, run_workload
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.jvm import CONSUMER_GROUPS, run_tool
from offsetstream.embedded.kafka import EmbeddedKafka
from tests.kafka.admin_answers import committed_offsets, describe_groups, list_groups
from tests.kafka.jobs import JobRunner

GROUPS = 55


@pytest.fixture(scope="module")
def admin(own_kafka: EmbeddedKafka) -> AdminClient:
    return admin_client(own_kafka.bootstrap_server)


@pytest.fixture(scope="module")
def workload(own_kafka: EmbeddedKafka) -> Iterator[Workload]:
    with run_workload(own_kafka.bootstrap_server, groups=GROUPS, seed=3, say=print) as running:
        yield running


@pytest.fixture(scope="module")
def runner(spark: SparkSession, own_kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> JobRunner:
    return JobRunner(spark, own_kafka.bootstrap_server, tmp_path_factory.mktemp("job"))


def assert_tables_equal_the_cluster(runner: JobRunner, admin: AdminClient) -> None:
    listed = list_groups(admin)
    columns = ("group_id", "topic", "partition", "committed_offset", "metadata", "leader_epoch")
    expected = [
        (*place, commit.committed_offset, commit.metadata, commit.leader_epoch)
        for place, commit in committed_offsets(admin, [group.group_id for group in listed]).items()
    ]
    # confluent-kafka appends a NUL to the metadata, and cuts it when it reads. The tables have the log's bytes.
    found = [(*row[:4], row[4].rstrip("\0"), row[5]) for row in runner.rows("committed_offsets", *columns)]
    assert sorted(found, key=repr) == sorted(expected, key=repr)

    rows = runner.rows("groups", "group_id", "group_type", "state", "is_simple", "in_coordinator_partition")
    assert rows == sorted(
        ((group.group_id, group.group_type, group.state, group.is_simple, True) for group in listed), key=repr
    )
    _assert_members_equal(runner, admin, [group.group_id for group in listed if group.group_type == "Classic"])


def _assert_members_equal(runner: JobRunner, admin: AdminClient, classic: list[str]) -> None:
    described = describe_groups(admin, classic)
    members = [(group.group_id, member) for group in described.values() for member in group.members]
    columns = ("group_id", "member_id", "client_id", "client_host", "group_instance_id")
    assert [row for row in runner.rows("group_members", *columns) if row[0] in classic] == sorted(
        (
            (group_id, member.member_id, member.client_id, member.client_host, member.group_instance_id)
            for group_id, member in members
        ),
        key=repr,
    )
    assigned = runner.rows("member_assignments", "group_id", "member_id", "kind", "topic", "partition")
    assert [row for row in assigned if row[0] in classic] == sorted(
        ((group_id, member.member_id, "assigned", *place) for group_id, member in members for place in member.assigned),
        key=repr,
    )
    protocols = {row[0]: row[1:] for row in runner.rows("groups", "group_id", "protocol", "member_count")}
    for group in described.values():
        assert protocols[group.group_id] == (group.assignor or None, len(group.members))


def test_tables_equal_the_cluster_after_the_first_load(
    runner: JobRunner, workload: Workload, admin: AdminClient
) -> None:
    assert len(workload.groups) >= 50
    runner.run_once()
    assert_tables_equal_the_cluster(runner, admin)
    partitions = runner.rows("offsets_partitions", "offsets_partition", "load_state", "load_id")
    assert partitions == sorted(((number, "OWNED", 1) for number in range(50)), key=repr)
    events = runner.rows("partition_events", "event", "offsets_partition")
    assert events == sorted(((event, number) for event in ("load started", "loaded") for number in range(50)), key=repr)
    assert runner.count("undecodable_records") == 0


def test_tables_equal_the_cluster_after_a_restart_from_the_checkpoint(
    runner: JobRunner, workload: Workload, admin: AdminClient
) -> None:
    workload.more()
    runner.run_once()
    assert_tables_equal_the_cluster(runner, admin)
    assert {row[0] for row in runner.rows("groups", "group_id")} >= workload.groups
    assert not {row[0] for row in runner.rows("groups", "group_id")} & workload.deleted
    assert "Continuing from checkpoint" in runner.said.getvalue()
    _assert_history_has_each_record_once(runner)


def test_tables_equal_the_cluster_after_a_lost_checkpoint(
    runner: JobRunner, workload: Workload, admin: AdminClient
) -> None:
    runner.settings = replace(runner.settings, checkpoint=runner.settings.checkpoint + "-lost")
    workload.more()
    runner.run_once()
    assert_tables_equal_the_cluster(runner, admin)
    _assert_history_has_each_record_once(runner)


def test_deleted_offsets_disappear(runner: JobRunner, own_kafka: EmbeddedKafka, admin: AdminClient) -> None:
    group = "two-commits"
    commits = [TopicPartition("orders", number, 7) for number in (0, 1)]
    commit_plainly(own_kafka.bootstrap_server, {group: commits})
    runner.run_once()
    places = ("group_id", "topic", "partition")
    assert {row for row in runner.rows("committed_offsets", *places) if row[0] == group} == {
        (group, "orders", 0),
        (group, "orders", 1),
    }
    server = ("--bootstrap-server", own_kafka.bootstrap_server)
    run_tool(CONSUMER_GROUPS, [*server, "--group", group, "--delete-offsets", "--topic", "orders:1"])
    runner.run_once()
    assert [row for row in runner.rows("committed_offsets", *places) if row[0] == group] == [(group, "orders", 0)]
    run_tool(CONSUMER_GROUPS, [*server, "--group", group, "--delete-offsets", "--topic", "orders:0"])
    runner.run_once()
    assert_tables_equal_the_cluster(runner, admin)
    _assert_history_has_each_record_once(runner)


def _assert_history_has_each_record_once(runner: JobRunner) -> None:
    for table in ("offset_commits", "group_records"):
        rows = runner.rows(table, "log_id", "offsets_partition", "record_offset")
        assert rows
        assert len(rows) == len(set(rows))
