"""One of three brokers stops and returns: the job continues, and its last events match the cluster's coordinators."""

import json

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from offsetstream.cli.main import main
from offsetstream.cluster.client import Cluster
from offsetstream.demo.topics import commit_plainly, create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.stream.lifecycle import live
from testkit.waiting import await_
from tests.kafka.jobs import JobRunner

pytestmark = pytest.mark.long

PARTITIONS = range(50)


def coordinators(cluster: Cluster) -> dict[int, tuple[int | None, int | None]]:
    ends = cluster.partition_ends(PARTITIONS)
    return {number: (end.coordinator_id, end.coordinator_epoch) for number, end in ends.items()}


def command(runner: JobRunner, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--tables", runner.tables.root, "--output", "json"])


def last_events(runner: JobRunner) -> dict[int, tuple[int | None, int | None]]:
    events = json.loads(command(runner, "partitions", "--events").stdout)
    return {row["offsets_partition"]: (row["coordinator_id"], row["coordinator_epoch"]) for row in events}


def await_the_clusters_coordinators(runner: JobRunner, cluster: Cluster) -> dict[int, tuple[int | None, int | None]]:
    current: dict[int, tuple[int | None, int | None]] = {}

    def are_equal() -> bool:
        current.update(coordinators(cluster))
        return last_events(runner) == current

    await_(are_equal, lambda: (last_events(runner), current, runner.said.getvalue()))
    return current


def await_commit(runner: JobRunner, offset: int) -> None:
    runner.await_(lambda: ("billing", offset) in runner.rows("committed_offsets", "group_id", "committed_offset"))


def test_the_last_events_match_the_clusters_coordinators(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "SAMPLE_SECONDS", 0.5)
    with EmbeddedKafka(brokers=3) as kafka:
        server, runner = (
            kafka.bootstrap_server,
            JobRunner(spark, kafka.bootstrap_server, tmp_path_factory.mktemp("job")),
        )
        create_topics(admin_client(server))
        commit_plainly(server, {"billing": [TopicPartition("orders", 0, 1)]})
        cluster = Cluster(server)
        runner.run_once()
        with runner.running():
            commit_plainly(server, {"billing": [TopicPartition("orders", 0, 2)]})
            await_commit(runner, 2)
            before = await_the_clusters_coordinators(runner, cluster)
            kafka.stop_broker(2)
            during = await_the_clusters_coordinators(runner, cluster)
            kafka.start_broker(2)
            await_the_clusters_coordinators(runner, cluster)
            commit_plainly(server, {"billing": [TopicPartition("orders", 0, 3)]})
            await_commit(runner, 3)
        moved = {number for number in PARTITIONS if before[number][0] != during[number][0]}
        assert moved == {number for number in PARTITIONS if before[number][0] == 2}
        events = runner.rows("partition_events", "offsets_partition", "event", "source", "previous_coordinator_id")
        for event in ("coordinator moved", "unloaded"):
            assert {number for number, name, *from_ in events if [name, *from_] == [event, "broker", 2]} == moved
        assert len(events) == len(set(events))
        assert_moves_are_shown(runner, kafka)


def assert_moves_are_shown(runner: JobRunner, kafka: EmbeddedKafka) -> None:
    shown = command(runner, "coordinator", "--group", "billing", "--bootstrap-server", kafka.bootstrap_server)
    (row,) = json.loads(shown.stdout)
    assert (shown.exit_code, row["differs"]) == (0, False)
    assert row["coordinator"] == row["cluster_coordinator"]
    addresses = kafka.bootstrap_server.split(",")
    assert row["coordinator"] == f"{addresses[row['coordinator_id'] - 1]} ({row['coordinator_id']})"
    server = ("--bootstrap-server", kafka.bootstrap_server)
    (state,) = json.loads(command(runner, "groups", "describe", "--group", "billing", "--state", *server).stdout)
    assert state["coordinator"] == row["coordinator"]
    (partition,) = runner.rows("offsets_partitions", "offsets_partition", "coordinator_id")[:1]
    assert partition == (0, coordinators(Cluster(kafka.bootstrap_server))[0][0])
