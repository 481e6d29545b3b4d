"""The offsets topic gets more partitions: readers see each group once, with the cluster's values."""

import json

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions
from pyspark.sql import SparkSession

from offsetstream.cli.main import main
from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.demo.topics import commit_plainly, create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.stream.lifecycle import live
from offsetstream.tables.names import STATE_TABLES
from testkit.waiting import SECONDS
from tests.kafka.jobs import JobRunner
from tests.kafka.partition_seven import is_loaded

pytestmark = pytest.mark.long

GROUPS = [f"group-{number}" for number in range(12)]


def commit(kafka: EmbeddedKafka, offset: int) -> None:
    commit_plainly(kafka.bootstrap_server, {group: [TopicPartition("orders", 0, offset)] for group in GROUPS})


def set_partitions(kafka: EmbeddedKafka, count: int) -> None:
    """Add partitions and restart, because brokers place groups by the new count only after a restart."""
    admin = admin_client(kafka.bootstrap_server)
    admin.create_partitions([NewPartitions(OFFSETS_TOPIC, count)])[OFFSETS_TOPIC].result(SECONDS)
    kafka.restart()


def command(runner: JobRunner, *arguments: str) -> Result:
    result = CliRunner().invoke(main, [*arguments, "--tables", runner.tables.root])
    assert result.exit_code == 0, result.output
    return result


def are_placed(runner: JobRunner, *counts: int) -> bool:
    """Return whether the groups, which committed at each of these partition counts, are placed by the last one."""
    places = {(group, partition_for(group, count)) for group in GROUPS for count in counts}
    expected = {(group, number, number == partition_for(group, counts[-1])) for group, number in places}
    columns = ("group_id", "offsets_partition", "in_coordinator_partition")
    found = {table: set(runner.rows(table, *columns)) for table in STATE_TABLES}
    return found["groups"] == expected and all(rows <= expected for rows in found.values())


def are_applied(runner: JobRunner, offset: int) -> bool:
    """Return whether the commits of this offset are applied for all groups."""
    found = runner.rows("committed_offsets", "group_id", "committed_offset", "in_coordinator_partition")
    return {group: at for group, at, is_own in found if is_own} == dict.fromkeys(GROUPS, offset)


def assert_readers_agree(runner: JobRunner, kafka: EmbeddedKafka, offset: int) -> None:
    listed = command(runner, "groups", "list").stdout.splitlines()[1:]
    assert sorted(line.split()[0] for line in listed if line) == sorted(GROUPS)
    described = json.loads(command(runner, "groups", "describe", "--all-groups", "--output", "json").stdout)
    current = [row for row in described if row["in_coordinator_partition"]]
    assert sorted((row["group"], row["current_offset"]) for row in current) == sorted((g, offset) for g in GROUPS)
    offsets = json.loads(command(runner, "offsets", "list", "--output", "json").stdout)
    assert sorted(row["group"] for row in offsets if row["in_coordinator_partition"]) == sorted(GROUPS)
    server = ("--bootstrap-server", kafka.bootstrap_server)
    for group in GROUPS:
        command(runner, "coordinator", "--group", group, *server)
    command(runner, "verify", *server)


def test_partitions_added_while_the_job_runs_or_is_stopped(
    spark: SparkSession,
    own_kafka: EmbeddedKafka,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "SAMPLE_SECONDS", 0.5)
    create_topics(admin_client(own_kafka.bootstrap_server))
    commit(own_kafka, 0)
    runner = JobRunner(spark, own_kafka.bootstrap_server, tmp_path_factory.mktemp("job"))
    with runner.running():
        runner.await_(lambda: is_loaded(runner) and are_placed(runner, 50))
        set_partitions(own_kafka, 100)
        commit(own_kafka, 1)
        runner.await_(lambda: are_placed(runner, 50, 100) and are_applied(runner, 1))
        assert_readers_agree(runner, own_kafka, 1)

    set_partitions(own_kafka, 120)
    commit(own_kafka, 2)
    runner.run_once()
    assert are_placed(runner, 50, 100, 120)
    assert_readers_agree(runner, own_kafka, 2)
