"""Batches of more records than the driver takes at once: tasks reduce them, and write their commits to the history."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from typing import Any

import pytest
from pyspark.sql import SparkSession

from offsetstream.codec.records import encode_record
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.demo.topics import create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.stream.apply import batch
from offsetstream.stream.apply.history import DecodedHistory
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.stream.state import StateTables
from offsetstream.tables.rows import MAX_SMALL_ROWS
from testkit.garbage import produce
from testkit.live_logs import joined
from tests.reliability.checked_job import CheckedJob

pytestmark = pytest.mark.long
GROUPS, TOPIC_PARTITIONS = 211, 7
_NUMBERS = count()


@pytest.fixture(scope="module")
def job(
    spark: SparkSession, own_kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CheckedJob]:
    create_topics(admin_client(own_kafka.bootstrap_server))
    made = CheckedJob(spark, own_kafka.bootstrap_server, tmp_path_factory.mktemp("job"))
    made.commit()
    assert made.run() == []
    with closing(joined(own_kafka.bootstrap_server, "present", "orders")):
        yield made


def commits(records: int) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """Yield commits of several groups, many times each; one in thirteen is deleted again."""
    for number in range(records):
        group = f"backlog-{number % GROUPS}"
        key = {"type": 1, "data": {"group": group, "topic": "orders", "partition": number % TOPIC_PARTITIONS}}
        data = {"offset": number, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 1_767_225_600_000 + number}
        encoded, value = encode_record(key, {"version": 3, "data": data})
        yield partition_for(group, 50), encoded, None if number % 13 == 0 else value


def write_backlog(server: str, records: int) -> None:
    produce(server, iter([(7, b"\x00\x63 no key", b"no value")]))
    with closing(joined(server, f"past-{next(_NUMBERS)}", "orders")):
        produce(server, commits(records))


def test_tables_equal_the_cluster_after_a_backlog(job: CheckedJob, own_kafka: EmbeddedKafka) -> None:
    write_backlog(own_kafka.bootstrap_server, MAX_SMALL_ROWS + 1)
    before = len(job.runner.said.getvalue())
    assert job.run() == []
    assert f": {MAX_SMALL_ROWS + 1:,} offset commits" in job.runner.said.getvalue()[before:]


@pytest.mark.parametrize("owner", [DecodedHistory, StateTables, PartitionBook])
def test_a_batch_that_dies_is_applied_once(
    job: CheckedJob, own_kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch, owner: type[Any]
) -> None:
    """It dies before it writes the decoded history, the state, or the book."""
    monkeypatch.setattr(batch, "MAX_SMALL_ROWS", 100)
    write_backlog(own_kafka.bootstrap_server, 500)

    def die(*_: Any, **__: Any) -> None:
        raise RuntimeError("the job dies here")

    name = {DecodedHistory: "append", StateTables: "apply", PartitionBook: "advance"}[owner]
    with pytest.MonkeyPatch.context() as dying, pytest.raises(Exception, match="the job dies here"):
        dying.setattr(owner, name, die)
        job.run()
    assert job.run() == []
