"""`verify` handles a cluster that changes between two of its queries."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import NewTopic

from offsetstream.cluster.client import Cluster
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.demo.topics import commit_plainly
from offsetstream.embedded.clients import admin_client
from offsetstream.verify.compare import read_position
from offsetstream.verify.sources import KafkaAdmin, TableRows, kafka_admin
from testkit.brokers import BrokerUnderTest
from testkit.waiting import SECONDS

TOPIC = "verify-beside-changes"
STAYS, GOES, LATER = f"{TOPIC}-stays", f"{TOPIC}-goes", f"{TOPIC}-later"
NEVER = {f"{TOPIC}-{group_type}": group_type for group_type in ("Classic", "Consumer", "Share", "Streams")}


@pytest.fixture(scope="module", autouse=True)
def topic(kafka: BrokerUnderTest) -> None:
    admin = admin_client(kafka.bootstrap_server)
    admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(SECONDS)


@pytest.fixture
def admin(kafka: BrokerUnderTest) -> Iterator[KafkaAdmin]:
    commit(kafka, STAYS, GOES, LATER)
    with kafka_admin(kafka.bootstrap_server, {}) as admin:
        yield admin


def commit(kafka: BrokerUnderTest, *groups: str) -> None:
    commit_plainly(kafka.bootstrap_server, {group: [TopicPartition(TOPIC, 0, 4)] for group in groups})


def delete(kafka: BrokerUnderTest, group: str) -> None:
    admin = admin_client(kafka.bootstrap_server)
    admin.delete_consumer_groups([group])[group].result(SECONDS)


class Interrupted(Cluster):
    """Changes something once between the queries for two kinds of end offsets."""

    happen: Callable[[], object] | None = None

    def _ask_offsets(self, *arguments: Any) -> Any:
        found = super()._ask_offsets(*arguments)
        if self.happen is not None and arguments[2] == IsolationLevel.READ_COMMITTED:
            happen, self.happen = self.happen, None
            happen()
        return found


def test_a_commit_between_two_queries_is_no_open_transaction(kafka: BrokerUnderTest) -> None:
    cluster = Interrupted(kafka.bootstrap_server, {})
    commit(kafka, STAYS)
    number = partition_for(STAYS, len(cluster.topic_partitions()))
    applied = cluster.partition_ends([number])[number].last_stable_offset
    tables = TableRows({}, {number: {"next_offset": applied}}, frozenset())
    cluster.happen = lambda: commit(kafka, STAYS)
    position = read_position(cluster, lambda: False, tables)
    assert cluster.happen is None
    assert (position.lag(number), position.is_blocked(number)) == (1, False)


def test_a_group_deleted_during_the_query_is_skipped(
    kafka: BrokerUnderTest, admin: KafkaAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = admin.list_groups

    def list_and_delete() -> list[dict[str, Any]]:
        found = original()
        delete(kafka, GOES)
        also = [{"group_id": name, "group_type": kind, "state": "Empty"} for name, kind in NEVER.items()]
        return [*found, *also]

    monkeypatch.setattr(admin, "list_groups", list_and_delete)
    answers = admin.answers({STAYS, GOES, *NEVER})
    assert [row["group_id"] for row in answers.groups] == [STAYS]
    assert [row["group_id"] for row in answers.offsets] == [STAYS]
    assert answers.gone == {GOES, *NEVER}


def test_a_group_deleted_before_the_query_for_its_offsets_is_skipped(
    kafka: BrokerUnderTest, admin: KafkaAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = admin.committed_offsets

    def delete_and_ask(*arguments: Any) -> list[dict[str, Any]]:
        delete(kafka, LATER)
        return original(*arguments)

    monkeypatch.setattr(admin, "committed_offsets", delete_and_ask)
    answers = admin.answers({STAYS, LATER})
    assert [row["group_id"] for row in answers.offsets] == [STAYS]
