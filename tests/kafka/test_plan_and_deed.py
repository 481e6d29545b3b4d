"""A group that changes between a plan and its execution is not touched."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from offsetstream import CommittedOffset, commit_offsets, fetch_offsets
from offsetstream.cluster.connection import QUIET
from offsetstream.cluster.group_admin import group_admin
from offsetstream.cluster.metadata import MetadataCache
from offsetstream.embedded.clients import admin_client
from offsetstream.operations.execute import CHANGED, execute
from offsetstream.operations.journal import Journal
from offsetstream.operations.reset import Scope, Target, plan_reset
from testkit.brokers import BrokerUnderTest
from testkit.live_logs import joined
from testkit.processes import within
from testkit.tables import new_tables
from testkit.waiting import SECONDS

RECORDS = 20


def create_topic(kafka: BrokerUnderTest, topic: str) -> None:
    """Create a topic of two partitions with equally many records."""
    admin = admin_client(kafka.bootstrap_server)
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(SECONDS)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_server}, logger=QUIET)
    for number in range(2 * RECORDS):
        producer.produce(topic, b"value", partition=number % 2)
    assert producer.flush(SECONDS) == 0


def test_a_group_that_changes_after_the_plan_is_not_touched(kafka: BrokerUnderTest, tmp_path: Path) -> None:
    server, topic = kafka.bootstrap_server, "changing"
    create_topic(kafka, topic)
    commit_offsets(server, "quick", {(topic, 0): 1, (topic, 1): 1})
    commit_offsets(server, "quiet", {(topic, 0): 1})
    commit_offsets(server, "joined", {(topic, 0): 1})
    cluster = MetadataCache(server)
    tables = new_tables(tmp_path / "tables", cluster_id=cluster.cluster_id())
    with group_admin(cluster, {}, 30, ("READ",)) as admin:
        plan = plan_reset(cluster, admin, ["joined", "quick", "quiet"], Scope({topic: None}), Target("latest"), 30)
        commit_offsets(server, "quick", {(topic, 1): 2})
        journal = Journal(tables, cluster.cluster_id(), "0123456789ab", "a test")
        with closing(joined(server, "joined", topic)), journal.holding(plan):
            result = execute(admin, plan, tmp_path / "snapshots", journal, lambda _: None)
    assert result.status(plan) == "partial"
    assert {each.group_id: result.error_of(each) for each in plan.changes} == {
        "joined": CHANGED,
        "quick": CHANGED,
        "quiet": None,
    }
    assert fetch_offsets(server, "joined") == {(topic, 0): CommittedOffset(1)}
    assert fetch_offsets(server, "quick") == {(topic, 0): CommittedOffset(1), (topic, 1): CommittedOffset(2)}
    assert fetch_offsets(server, "quiet") == {(topic, number): CommittedOffset(RECORDS) for number in (0, 1)}


def test_the_deletion_of_a_group_can_be_undone(kafka: BrokerUnderTest, tmp_path: Path) -> None:
    server, topic = kafka.bootstrap_server, "left"
    create_topic(kafka, topic)
    before = {(topic, 0): CommittedOffset(3, metadata="kept"), (topic, 1): CommittedOffset(7)}
    commit_offsets(server, "leaving", before)
    new_tables(tmp_path / "tables", cluster_id=MetadataCache(server).cluster_id())
    for command, committed in ((("groups", "delete", "--group", "leaving"), {}), (("offsets", "undo"), before)):
        options = ("--bootstrap-server", server, "--tables", str(tmp_path / "tables"))
        done = within(*command, "--execute", *options)
        assert done.returncode == 0, done.stderr
        assert fetch_offsets(server, "leaving") == committed
