"""If brokers do not place groups by Kafka's hash and the current partition count, every reader still finds every group.

For Redpanda's rule, the tests write records where Redpanda would. For a topic that grew, they use Kafka's own broker,
which keeps the partition count of its start (KAFKA-7771).
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewPartitions
from pyspark.sql import SparkSession

from offsetstream.cli.main import main
from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.codec.records import encode_record
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.demo.topics import commit_plainly, create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.stream.lifecycle import live
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.names import STATE_TABLES
from testkit.large import exceed_the_driver
from testkit.redpanda import redpanda_partition_for
from testkit.waiting import SECONDS
from tests.kafka.jobs import JobRunner

GROUPS = [f"group-{number}" for number in range(40)]
FEW, MORE, MOST = 4, 8, 12


@pytest.fixture
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(properties={"offsets.topic.num.partitions": str(FEW)}) as kafka:
        create_topics(admin_client(kafka.bootstrap_server))
        yield kafka


def commit(kafka: EmbeddedKafka, offset: int, groups: list[str] = GROUPS) -> None:
    commit_plainly(kafka.bootstrap_server, {group: [TopicPartition("orders", 0, offset)] for group in groups})


def add_partitions(kafka: EmbeddedKafka, count: int) -> None:
    admin = admin_client(kafka.bootstrap_server)
    admin.create_partitions([NewPartitions(OFFSETS_TOPIC, count)])[OFFSETS_TOPIC].result(SECONDS)


def write_as_redpanda(kafka: EmbeddedKafka, offset: int) -> None:
    """Write, for each group id, commits and an empty classic group to the partition that Redpanda would use."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_server, "client.id": "__admin_client"})
    for group in GROUPS:
        key = {"type": 1, "data": {"group": group, "topic": "orders", "partition": 0}}
        data = {"offset": offset, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 1}
        group_value = {"protocolType": "consumer", "generation": 3, "protocol": None, "leader": None}
        group_value |= {"currentStateTimestamp": 1, "members": []}
        for each, value in ((key, data), ({"type": 2, "data": {"group": group}}, group_value)):
            record = encode_record(each, {"version": 3, "data": value})
            producer.produce(OFFSETS_TOPIC, record[1], record[0], redpanda_partition_for(group, FEW))
    assert producer.flush(SECONDS) == 0


def homes(runner: JobRunner) -> dict[str, int]:
    """Return the offsets partition of each group; all state tables must agree."""
    found = {}
    for name in STATE_TABLES:
        in_its_partition = {"in_coordinator_partition": [True]}
        rows = Lookup(runner.tables).rows(name, ["group_id", "offsets_partition"], in_its_partition, distinct=True)
        found[name] = {row["group_id"]: row["offsets_partition"] for row in rows}
        assert len(found[name]) == len(rows), "a group has two homes"
    assert all(table_homes.items() <= found["groups"].items() for table_homes in found.values())
    return found["groups"]


def rule(runner: JobRunner) -> object:
    (found,) = runner.values("offsets_partitions", "placement_rule")
    return found


def answer_rows(runner: JobRunner, *arguments: str) -> list[Mapping[str, object]]:
    result = CliRunner().invoke(main, [*arguments, "--tables", runner.tables.root, "--output", "json"])
    assert result.exit_code in {0, 4}, result.output
    found: list[Mapping[str, object]] = json.loads(result.stdout)
    return found


def assert_readers_find(runner: JobRunner, kafka: EmbeddedKafka, offset: int) -> None:
    """Each reader has each group once, with its last offset, and `verify` finds no difference."""
    listed = CliRunner().invoke(main, ["groups", "list", "--tables", runner.tables.root]).stdout.splitlines()[1:]
    assert sorted(line.split()[0] for line in listed if line) == sorted(GROUPS)
    described = answer_rows(runner, "groups", "describe", "--all-groups")
    current = [(row["group"], row["current_offset"]) for row in described if row["in_coordinator_partition"]]
    assert sorted(current, key=str) == sorted(((group, offset) for group in GROUPS), key=str)
    assert {row["group"] for row in answer_rows(runner, "lag", "--all-groups")} == set(GROUPS)
    assert {(row["group"], row["committed_offset"]) for row in answer_rows(runner, "offsets", "list")} >= {
        (group, offset) for group in GROUPS
    }
    for row in answer_rows(runner, "coordinator", *(each for group in GROUPS for each in ("--group", group))):
        assert row["offsets_partition"] == homes(runner)[str(row["group"])]
    arguments = ["verify", "--tables", runner.tables.root, "--bootstrap-server", kafka.bootstrap_server]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output


@pytest.mark.long
@pytest.mark.parametrize("is_large", [False, True])
def test_groups_placed_by_redpandas_rule_are_found(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    if is_large:
        exceed_the_driver(monkeypatch)
    commit(kafka, 1, ["maker"])  # creates the topic
    write_as_redpanda(kafka, 5)
    runner = JobRunner(spark, kafka.bootstrap_server, tmp_path)
    by_redpanda = {group: redpanda_partition_for(group, FEW) for group in GROUPS}
    for offset in (5, 6):  # by the first load, then by a batch of the next job
        write_as_redpanda(kafka, offset)
        runner.job(once=True).run()
        assert rule(runner) == "records"
        assert {group: home for group, home in homes(runner).items() if group != "maker"} == by_redpanda
        assert runner.said.getvalue().count("do not place groups by Kafka's hash") == 1
    rows = runner.rows("committed_offsets", "group_id", "committed_offset", "in_coordinator_partition")
    assert {row for row in rows if row[0] != "maker"} == {(group, 6, True) for group in GROUPS}


@pytest.mark.long
@pytest.mark.parametrize("is_large", [False, True])
def test_groups_are_found_before_and_after_brokers_learn_a_new_count(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path, is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_large:
        exceed_the_driver(monkeypatch)
    for name in ("SAMPLE_SECONDS", "PLACEMENT_SECONDS"):
        monkeypatch.setattr(live, name, 0.5)
    commit(kafka, 1)
    runner = JobRunner(spark, kafka.bootstrap_server, tmp_path)
    before, after = ({group: partition_for(group, count) for group in GROUPS} for count in (FEW, MORE))
    with runner.running():
        runner.await_(lambda: "Starting checkpoint" in runner.said.getvalue() and rule(runner) == "java")
        assert homes(runner) == before
        add_partitions(kafka, MORE)
        commit(kafka, 2)  # brokers still count four partitions
        runner.await_(lambda: rule(runner) == "records" and is_applied(runner, before, 2))
        assert homes(runner) == before
        assert_readers_find(runner, kafka, 2)

        kafka.restart()
        commit(kafka, 3)
        runner.await_(lambda: rule(runner) == "java" and is_applied(runner, after, 3))
        assert homes(runner) == after
        assert_readers_find(runner, kafka, 3)
    assert runner.said.getvalue().count("until they are restarted") == 1

    add_partitions(kafka, MOST)  # while no job runs
    kafka.restart()
    commit(kafka, 4)
    runner.run_once()
    assert homes(runner) == {group: partition_for(group, MOST) for group in GROUPS}
    assert_readers_find(runner, kafka, 4)


def is_applied(runner: JobRunner, partition_of: Mapping[str, int], offset: int) -> bool:
    columns = ("group_id", "offsets_partition", "committed_offset", "in_coordinator_partition")
    found = {row[:3] for row in runner.rows("committed_offsets", *columns) if row[3]}
    groups = {row[:2] for row in runner.rows("groups", "group_id", "offsets_partition", columns[3]) if row[2]}
    return groups == set(partition_of.items()) and found == {(*each, offset) for each in partition_of.items()}
