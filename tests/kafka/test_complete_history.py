"""What `history_complete_from` says, against a client's own list of its commits, where compaction is quick."""

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
from offsetstream.cluster.consumers import close
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.demo.commits import commit_in_transaction
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.stream.apply import load
from offsetstream.stream.apply.log_pass import pass_over
from offsetstream.verify.ledger import ledger_differences
from offsetstream.verify.topic import TopicReader
from tests.kafka.jobs import JobRunner
from tests.kafka.partition_seven import is_loaded, set_topic_config
from tests.kafka.quick_compaction import quickly_compacting_kafka

pytestmark = pytest.mark.long

STEADY = next(f"steady-{number}" for number in range(400) if partition_for(f"steady-{number}", 50) == 7)
TRIGGER = "3 seconds"  # the cleaner needs a tenth of it


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with quickly_compacting_kafka() as kafka:
        yield kafka


@pytest.fixture
def runner(spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path) -> JobRunner:
    return JobRunner(spark, kafka.bootstrap_server, tmp_path)


class Committer:
    """Commits one offset after the other for a group of partition 7, and lists them with the time before each."""

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
        ended = threading.Event()
        thread = threading.Thread(target=self.commit_until, args=(ended,))
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def in_history(runner: JobRunner) -> set[int]:
    found = runner.rows("offset_commits", "group_id", "committed_offset")
    return {offset for group_id, offset in found if group_id == STEADY}


def complete_from(runner: JobRunner) -> datetime:
    milliseconds = dict(runner.rows("offsets_partitions", "offsets_partition", "history_complete_from_ms"))[7]
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def missing(runner: JobRunner, committer: Committer) -> list[datetime]:
    """When those commits were made that the history lacks, of those before the last one that it has."""
    there = in_history(runner)
    return [committer.sent[offset] for offset in range(1, max(there)) if offset not in there]


def batches(runner: JobRunner) -> int:
    return runner.said.getvalue().count(" INFO  Batch ")


def test_what_compaction_took_before_a_batch_read_it_is_not_claimed(runner: JobRunner, kafka: EmbeddedKafka) -> None:
    committer = Committer(kafka)
    with committer.committing(), runner.running(TRIGGER):
        runner.await_(lambda: is_loaded(runner) and batches(runner) >= 3)
    runner.run_once()
    claimed, lacks = complete_from(runner), missing(runner, committer)
    assert len(lacks) > 10  # the cleaner was quicker
    assert [at for at in lacks if at >= claimed] == []
    # What it has is right all the same, whatever the cleaner took meanwhile.
    assert ledger_differences(runner.tables, checksums=True) == []
    found = TopicReader(Cluster(kafka.bootstrap_server), {}, runner.tables, print).reconcile()
    assert (found.differences, found.not_compared) == ([], {})


def test_what_compaction_took_during_a_long_load_is_not_claimed(
    runner: JobRunner, kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load reads to the ends that it saw when it began; what was committed since then is left to the stream."""
    committer, began = Committer(kafka), list[int]()

    def slowly(*arguments: Any, **options: Any) -> Any:
        if not began:
            began.append(len(committer.sent))
            runner.await_(lambda: len(committer.sent) > began[0] + 50)
        return pass_over(*arguments, **options)

    monkeypatch.setattr(load, "pass_over", slowly)
    with committer.committing():
        runner.await_(lambda: len(committer.sent) > 20)
        runner.run_once()
    runner.run_once()
    claimed, lacks = complete_from(runner), missing(runner, committer)
    during = [at for at in lacks if at >= committer.sent[began[0] + 1]]
    assert len(during) > 10  # the cleaner was quicker than the load
    assert [at for at in lacks if at >= claimed] == []


@pytest.mark.parametrize(
    "config",
    [
        {"min_compaction_lag_ms": "600000"},
        {"min_compaction_lag_ms": "0", "segment_ms": "600000"},  # nothing proves it but the log itself
    ],
    ids=["a lag", "luck"],
)
def test_without_compaction_nothing_is_missing_whatever_transactions_leave(
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
