"""`history_complete_from` is right even with quick compaction, compared with a client's own list of its commits."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from offsetstream.cluster.client import Cluster
from offsetstream.cluster.records import close
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.demo.topics import commit_in_transaction
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.stream.apply import load
from offsetstream.stream.apply.log_pass import pass_on_driver
from offsetstream.verify.ledger import ledger_differences
from offsetstream.verify.topic import TopicReader
from testkit.waiting import at_work
from tests.kafka.jobs import JobRunner
from tests.kafka.partition_seven import is_loaded, set_topic_config
from tests.kafka.quick_compaction import quickly_compacting_kafka

pytestmark = pytest.mark.long

STEADY = next(f"steady-{number}" for number in range(400) if partition_for(f"steady-{number}", 50) == 7)
TRIGGER = "3 seconds"  # the cleaner needs a tenth of that


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with quickly_compacting_kafka() as kafka:
        yield kafka


@pytest.fixture
def runner(spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path) -> JobRunner:
    return JobRunner(spark, kafka.bootstrap_server, tmp_path)


class Committer:
    """Commits increasing offsets for a group of partition 7, and keeps the time just before each commit."""

    def __init__(self, kafka: EmbeddedKafka) -> None:
        self._server = kafka.bootstrap_server
        self.sent: dict[int, datetime] = {}

    def commit_until(self, ended: threading.Event) -> None:
        consumer = Consumer({"bootstrap.servers": self._server, "group.id": STEADY, "enable.auto.commit": False})
        consumer.assign([TopicPartition("orders", 0)])
        while not ended.wait(0.02):
            offset, at = len(self.sent) + 1, datetime.now(UTC)
            consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
            self.sent[offset] = at
        close(consumer)

    @contextmanager
    def committing(self) -> Iterator[None]:
        with at_work(self.commit_until):
            yield


def in_history(runner: JobRunner) -> set[int]:
    found = runner.rows("offset_commits", "group_id", "committed_offset")
    return {offset for group_id, offset in found if group_id == STEADY}


def complete_from(runner: JobRunner) -> datetime:
    milliseconds = dict(runner.rows("offsets_partitions", "offsets_partition", "history_complete_from_ms"))[7]
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def missing(runner: JobRunner, committer: Committer) -> list[datetime]:
    """Return the times of commits that the history lacks, up to the last commit that it has."""
    present = in_history(runner)
    return [committer.sent[offset] for offset in range(1, max(present)) if offset not in present]


def batches(runner: JobRunner) -> int:
    return runner.said.getvalue().count(" INFO  Batch ")


def test_history_is_not_complete_before_records_that_compaction_removed_before_a_batch(
    runner: JobRunner, kafka: EmbeddedKafka
) -> None:
    committer = Committer(kafka)
    with committer.committing(), runner.running(TRIGGER):
        runner.await_(lambda: is_loaded(runner) and batches(runner) >= 3)
    runner.run_once()
    claimed, lacks = complete_from(runner), missing(runner, committer)
    assert len(lacks) > 10  # the cleaner was quicker than the job
    assert [at for at in lacks if at >= claimed] == []
    # The rows that the history has are right, whatever the cleaner removed.
    assert ledger_differences(runner.tables, checksums=True) == []
    found = TopicReader(Cluster(kafka.bootstrap_server), {}, runner.tables, print).reconcile()
    assert (found.differences, found.not_compared) == ([], {})


def test_history_is_not_complete_before_records_that_compaction_removed_during_a_load(
    runner: JobRunner, kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load reads up to the end offsets at its start; the stream reads later commits."""
    committer, sent_before_load = Committer(kafka), list[int]()

    def slowly(*arguments: Any, **options: Any) -> Any:
        if not sent_before_load:
            sent_before_load.append(len(committer.sent))
            runner.await_(lambda: len(committer.sent) > sent_before_load[0] + 50)
        return pass_on_driver(*arguments, **options)

    monkeypatch.setattr(load, "pass_on_driver", slowly)
    with committer.committing():
        runner.await_(lambda: len(committer.sent) > 20)
        runner.run_once()
    runner.run_once()
    claimed, lacks = complete_from(runner), missing(runner, committer)
    during = [at for at in lacks if at >= committer.sent[sent_before_load[0] + 1]]
    assert len(during) > 10  # the cleaner was quicker than the load
    assert [at for at in lacks if at >= claimed] == []


@pytest.mark.parametrize(
    "config",
    [
        {"min_compaction_lag_ms": "600000"},
        {"min_compaction_lag_ms": "0", "segment_ms": "600000"},  # only the log itself proves it
    ],
    ids=["a lag", "luck"],
)
def test_without_compaction_history_is_complete_despite_transaction_markers(
    runner: JobRunner, kafka: EmbeddedKafka, config: dict[str, str]
) -> None:
    set_topic_config(kafka, **config)
    committer = Committer(kafka)
    with runner.running(TRIGGER):
        runner.await_(lambda: is_loaded(runner))
        claimed = complete_from(runner)
        with committer.committing():
            for offset in range(4):
                place = [TopicPartition("orders", 1, 10 + offset)]
                commit_in_transaction(kafka.bootstrap_server, STEADY, place, abort=offset % 2 == 1)
            done = batches(runner)
            runner.await_(lambda: batches(runner) >= done + 3)
    runner.run_once()
    assert len(committer.sent) > 100
    assert committer.sent.keys() <= in_history(runner)
    assert complete_from(runner) == claimed
