"""Without replicas, a dead broker's offsets partitions have no leader: the job continues with the others."""

import json
from collections.abc import Callable, Collection, Iterator

import pytest
from click.testing import CliRunner
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from offsetstream.cli.main import main
from offsetstream.cluster.client import Cluster
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.demo.topics import commit_plainly, create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.stream.lifecycle import leaders, live
from offsetstream.tables.lease import read_lease, request_reload
from testkit.waiting import await_
from tests.kafka.jobs import JobRunner
from tests.kafka.partition_seven import is_loaded, load_ids
from tests.reliability.truth import differences

pytestmark = pytest.mark.long

DEAD = 2
GROUPS = {f"group-{number}": partition_for(f"group-{number}", 50) for number in range(30)}


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=3, properties={"offsets.topic.replication.factor": "1"}) as kafka:
        create_topics(admin_client(kafka.bootstrap_server))
        commit(kafka, range(50), 0)
        yield kafka


@pytest.fixture(scope="module")
def runner(spark: SparkSession, kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> JobRunner:
    return JobRunner(spark, kafka.bootstrap_server, tmp_path_factory.mktemp("job"))


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "SAMPLE_SECONDS", 0.5)
    monkeypatch.setattr(leaders, "WITHOUT_LEADER_SECONDS", 5.0)


@pytest.fixture(scope="module")
def lost(kafka: EmbeddedKafka) -> list[int]:
    """Return the partitions that only the broker has that will stop."""
    return [number for number, broker in Cluster(kafka.bootstrap_server).leaders().items() if broker == DEAD]


def with_leader(lost: Collection[int]) -> set[int]:
    return set(range(50)) - set(lost)


def commit(kafka: EmbeddedKafka, partitions: Collection[int], offset: int) -> None:
    groups = [group for group, partition in GROUPS.items() if partition in partitions]
    commit_plainly(kafka.bootstrap_server, {group: [TopicPartition("orders", 0, offset)] for group in groups})


def are_at(runner: JobRunner, partitions: Collection[int], offset: int) -> bool:
    found = runner.rows("committed_offsets", "offsets_partition", "committed_offset")
    return {at for number, at in found if number in partitions} == {offset}


def available(runner: JobRunner) -> set[int]:
    """Return the partitions that have a leader according to the tables."""
    shown = CliRunner().invoke(main, ["partitions", "--tables", runner.tables.root, "--output", "json"])
    return {row["offsets_partition"] for row in json.loads(shown.stdout) if row["coordinator_available"]}


def test_partitions_with_leaders_continue(runner: JobRunner, kafka: EmbeddedKafka, lost: list[int]) -> None:
    with runner.running():
        runner.await_(lambda: is_loaded(runner) and are_at(runner, range(50), 0))
        kafka.stop_broker(DEAD, kill=True)
        commit(kafka, with_leader(lost), 1)
        runner.await_(lambda: are_at(runner, with_leader(lost), 1))
        runner.await_(lambda: available(runner) == with_leader(lost))
        assert are_at(runner, lost, 0)
        assert "Restarting: no broker leads offsets partitions" in runner.said.getvalue()

        before, led = load_ids(runner), min(with_leader(lost))
        request_reload(runner.tables, [led, lost[0]])
        runner.await_(lambda: load_ids(runner)[led] > before[led])
        assert load_ids(runner)[lost[0]] == before[lost[0]]
        runner.await_(lambda: requested(runner) == str(lost[0]))  # the reload waits for the leader

        kafka.start_broker(DEAD)
        commit(kafka, range(50), 2)
        runner.await_(lambda: are_at(runner, range(50), 2))
        runner.await_(lambda: requested(runner) is None)
        assert load_ids(runner) == {number: before[number] + (number in {led, lost[0]}) for number in before}
        assert available(runner) == set(range(50))
    assert differences(runner.tables, kafka.bootstrap_server, {}) == []


def requested(runner: JobRunner) -> str | None:
    lease = read_lease(runner.tables)
    assert lease is not None
    return lease.reload_requested


@pytest.mark.nightly
def test_a_starting_job_continues_with_the_partitions_that_have_leaders(
    runner: JobRunner, kafka: EmbeddedKafka, lost: list[int]
) -> None:
    """The next job reads all partitions, so it does not use this job's checkpoint."""
    await_leaders(kafka, lambda led: led == set(range(50)))
    kafka.stop_broker(DEAD, kill=True)
    await_leaders(kafka, lambda led: led == with_leader(lost))
    commit(kafka, with_leader(lost), 3)
    for _ in range(2):
        runner.run_once()
    assert "Everything is applied, except offsets partitions" in runner.said.getvalue()
    assert "Continuing from checkpoint" in runner.said.getvalue()
    assert are_at(runner, with_leader(lost), 3)
    assert are_at(runner, lost, 2)

    kafka.start_broker(DEAD)
    commit(kafka, range(50), 4)
    runner.run_once()
    assert are_at(runner, range(50), 4)
    assert differences(runner.tables, kafka.bootstrap_server, {}) == []


def await_leaders(kafka: EmbeddedKafka, condition: Callable[[set[int]], bool]) -> None:
    cluster = Cluster(kafka.bootstrap_server)
    await_(lambda: condition({number for number, broker in cluster.leaders().items() if broker is not None}))
