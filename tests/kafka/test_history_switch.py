"""--no-history: what runs write without history, and from when it is complete once it is kept again."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer, TopicPartition
from pyspark.sql import SparkSession

from offsetstream.coordinator.partitioning import partition_for
from offsetstream.demo.topics import commit_plainly, create_topics
from offsetstream.embedded.clients import QUIET, admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.verify.records import disagreements, read_records
from testkit.large import exceed_the_driver
from testkit.waiting import SECONDS
from tests.conformance.builder import classic, classic_member, commit
from tests.kafka.jobs import JobRunner

pytestmark = pytest.mark.long

KEPT_ALWAYS = "undecodable_records"
SWITCHED = ("offset_commits", "group_records")


class GroupsRecords:
    """A group, the records of its offsets partition, and their rows in the tables."""

    def __init__(self, server: str, group: str, runner: JobRunner) -> None:
        self.runner = runner
        self._server = server
        self._group = group
        self._home = partition_for(group, 50)

    def write_all_kinds(self, number: int) -> None:
        """Write a commit, a group record, and undecodable records with the same keys, which must hide neither.

        No real client commits here: a coordinator that finds garbage in its partition serves none of its groups.
        """
        key, value = classic(classic_member(), group=self._group)
        committed = commit("orders", 0, number, group=self._group)
        broken = ((key, b"\0\x63"), (committed[0], b"\0\x09"), (b"\x7f\xff", b"of no known type"))
        producer = Producer({"bootstrap.servers": self._server, "client.id": "__admin_client"}, logger=QUIET)
        for record in (committed, (key, value), *broken):
            producer.produce("__consumer_offsets", key=record[0], value=record[1], partition=self._home)
        assert producer.flush(SECONDS) == 0

    @property
    def committed(self) -> list[object]:
        found = self.runner.rows("committed_offsets", "group_id", "committed_offset")
        return [offset for group, offset in found if group == self._group]

    def counts(self, *tables: str) -> list[int]:
        found = [self.runner.rows(table, "offsets_partition", "record_offset") for table in tables]
        return [sum(partition == self._home for partition, _ in rows) for rows in found]


@pytest.fixture(params=["small", pytest.param("large", marks=pytest.mark.nightly)])
def records(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    own_kafka: EmbeddedKafka,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> GroupsRecords:
    if request.param == "large":
        exceed_the_driver(monkeypatch)
    create_topics(admin_client(own_kafka.bootstrap_server))
    commit_plainly(own_kafka.bootstrap_server, {"first": [TopicPartition("orders", 0, 1)]})  # creates the topic
    runner = JobRunner(spark, own_kafka.bootstrap_server, tmp_path_factory.mktemp("job"))
    return GroupsRecords(own_kafka.bootstrap_server, f"of-{request.param}", runner)


def test_history_is_complete_only_from_when_it_is_kept_again(records: GroupsRecords) -> None:
    runner = records.runner
    records.write_all_kinds(1)
    runner.job(once=True, history=False).run()
    assert records.committed == [1]
    assert records.counts(*SWITCHED, KEPT_ALWAYS) == [0, 0, 3]
    assert runner.count("partition_events") == 2 * 50
    assert runner.values("offsets_partitions", "history_complete_from") == {None}
    assert disagreements(read_records(runner.tables)) == []

    records.write_all_kinds(2)
    runner.job(once=True, history=False).run()  # by the stream, not by a load
    assert records.committed == [2]
    assert records.counts(*SWITCHED, KEPT_ALWAYS) == [0, 0, 6]
    assert runner.values("offsets_partitions", "load_id") == {1}

    runner.run_once()
    assert "has gaps: they are loaded again" in runner.said.getvalue()
    assert records.counts(*SWITCHED, KEPT_ALWAYS) == [2, 2, 6]
    assert runner.values("offsets_partitions", "load_id") == {2}
    complete = runner.rows("offsets_partitions", "history_complete_from")
    assert complete == runner.rows("offsets_partitions", "load_started_at")
    assert disagreements(read_records(runner.tables)) == []

    records.write_all_kinds(3)
    runner.run_once()
    assert records.counts(*SWITCHED, KEPT_ALWAYS) == [3, 3, 9]
    assert runner.rows("offsets_partitions", "history_complete_from") == complete
    assert disagreements(read_records(runner.tables)) == []

    records.write_all_kinds(4)  # without a new record this run would leave the history complete
    runner.job(once=True, history=False).run()
    assert runner.values("offsets_partitions", "history_complete_from") == {None}
