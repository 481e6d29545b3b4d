"""The main loop: wait for the topic, take the lease, load, stream, and stop between two batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from offsetstream.cluster.client import Cluster
from offsetstream.errors import NoOffsetsTopicError, UnauthorisedError
from offsetstream.stream.batch import BatchWriter
from offsetstream.stream.checkpoint import Checkpoint
from offsetstream.stream.failures import explain_failure
from offsetstream.stream.heartbeat import Heartbeat
from offsetstream.stream.history import RECORD_TABLES, History, history_positions
from offsetstream.stream.load import Loader
from offsetstream.stream.partition_book import PartitionBook
from offsetstream.stream.progress import Progress
from offsetstream.stream.source import KafkaSource
from offsetstream.stream.start import delete_retention, last_checkpoint, next_checkpoint, partitions_to_load
from offsetstream.stream.topic_book import TopicBook
from offsetstream.tables.create import create_tables
from offsetstream.tables.lease import Lease
from offsetstream.tables.location import TablesLocation
from offsetstream.tables.write import TableWriter

POLL_SECONDS = 1.0
TOPIC_WAIT_SECONDS = 30.0
IDLE_REFRESH_SECONDS = 600.0


@dataclass(frozen=True)
class JobSettings:
    """What a user says of the job; ``trigger`` in Spark's words, such as ``10 seconds``."""

    bootstrap_server: str
    tables: TablesLocation
    checkpoint: str
    properties: dict[str, str] = field(default_factory=dict)
    trigger: str = "10 seconds"
    once: bool = False
    coordinator: str | None = None  # new or classic; None asks the brokers
    max_offsets_per_trigger: int | None = None


class StopRequestedError(Exception):
    """Raised inside a micro-batch that must not begin; Spark leaves it undone, and the next run does it."""


class Job:
    """One run of the streaming job, from start to a stop between two batches."""

    def __init__(
        self, settings: JobSettings, session: Callable[[], AbstractContextManager[SparkSession]], progress: Progress
    ) -> None:
        self._settings = settings
        self._session = session
        self._progress = progress
        self._stopping = threading.Event()
        self._in_batch = threading.Lock()
        self._cluster = Cluster(settings.bootstrap_server, settings.properties)

    def stop(self) -> None:
        """Ask the job to end after its present batch; may be called from a signal handler."""
        self._stopping.set()

    def _asked_to_stop(self, by: str) -> None:
        if not self._stopping.is_set():
            self._progress.say(f"{by} asks this job to stop")
        self.stop()

    def run(self) -> None:
        """Run until stopped or, with ``once``, until everything that is there now is applied."""
        partitions = self._wait_for_topic()
        if self._stopping.is_set():
            return
        cluster_id, coordinator = self._cluster.cluster_id(), self._coordinator()
        self._progress.say(
            f"Cluster {cluster_id}: {len(partitions)} offsets partitions, {coordinator} group coordinator"
        )
        create_tables(self._settings.tables, cluster_id, coordinator)
        lease = Lease.acquire(self._settings.tables)
        with Heartbeat(lease, self._asked_to_stop), self._session() as spark:
            self._work(spark, lease, partitions, coordinator)
        self._progress.say("Stopped between two batches" if self._stopping.is_set() else "Everything is applied")

    def _wait_for_topic(self) -> list[int]:
        while not self._stopping.is_set():
            try:
                return self._cluster.topic_partitions()
            except NoOffsetsTopicError as error:
                if self._settings.once:
                    raise
                self._progress.say(f"{error}: no group has committed yet; looking again in {TOPIC_WAIT_SECONDS:.0f} s")
                self._stopping.wait(TOPIC_WAIT_SECONDS)
        return []

    def _coordinator(self) -> str:
        if self._settings.coordinator is not None:
            return self._settings.coordinator
        try:
            return self._cluster.coordinator_kind()
        except UnauthorisedError as error:
            self._progress.say(f"Taking the brokers' group coordinator for the new one: {error}")
            return "new"

    def _work(self, spark: SparkSession, lease: Lease, partitions: list[int], coordinator: str) -> None:
        settings, writer = self._settings, TableWriter(spark, self._settings.tables)
        book, topics = PartitionBook(settings.tables, partitions), TopicBook(settings.tables)
        source = KafkaSource(settings.bootstrap_server, settings.properties)
        checkpoint = self._load(writer, source, book, topics, lease, coordinator)
        if self._stopping.is_set():
            return
        above = min(book.next_offsets.values(), default=0)
        written = {table: history_positions(writer, table, book.log_ids, above) for table in RECORD_TABLES}
        history = History(writer, book.log_ids, written)
        batches = BatchWriter(writer, self._cluster, book, topics, history, coordinator, checkpoint)
        self._stream(spark, source, book, batches, checkpoint)

    def _load(
        self,
        writer: TableWriter,
        source: KafkaSource,
        book: PartitionBook,
        topics: TopicBook,
        lease: Lease,
        coordinator: str,
    ) -> Checkpoint:
        root, tables = self._settings.checkpoint, self._settings.tables
        retention, warning = delete_retention(self._cluster)
        if warning:
            self._progress.say(warning)
        to_load = partitions_to_load(book.rows, self._cluster.partition_ends(book.partitions), retention)
        last = last_checkpoint(writer.spark, root, lease, tables)
        if last is not None and not to_load:
            self._progress.say(f"Going on with checkpoint {last.location}")
            return last
        checkpoint = next_checkpoint(writer.spark, root, lease, tables)
        if to_load:
            loader = Loader(writer, source, self._cluster, book, topics, coordinator)
            with explain_failure(self._cluster):
                loader.load(to_load, checkpoint.checkpoint_id, self._progress, self._stopping.is_set)
        self._progress.say(f"Starting checkpoint {checkpoint.location}")
        return checkpoint

    def _stream(
        self,
        spark: SparkSession,
        source: KafkaSource,
        book: PartitionBook,
        batches: BatchWriter,
        checkpoint: Checkpoint,
    ) -> None:
        frame = source.stream(spark, book.next_offsets, self._settings.max_offsets_per_trigger)
        writer = frame.writeStream.queryName("offsetstream").option("checkpointLocation", checkpoint.location)
        once, trigger = self._settings.once, self._settings.trigger
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=trigger)
        query = writer.foreachBatch(lambda raw, batch_id: self._apply(batches, raw, batch_id)).start()
        refreshed = time.monotonic()
        while query.isActive and not self._stopping.wait(POLL_SECONDS):
            if time.monotonic() - refreshed > IDLE_REFRESH_SECONDS:
                refreshed = time.monotonic()
                self._refresh(batches)
        self._end(query)

    def _apply(self, batches: BatchWriter, raw: DataFrame, batch_id: int) -> None:
        while not self._in_batch.acquire(timeout=0.1):
            if self._stopping.is_set():
                raise StopRequestedError
        try:
            if self._stopping.is_set():
                raise StopRequestedError
            report = batches.apply(raw, batch_id)
        finally:
            self._in_batch.release()
        self._progress.batch(report.batch_id, report.records, report.seconds)

    def _refresh(self, batches: BatchWriter) -> None:
        """Note that an idle topic is still caught up, so that a later start need not load it."""
        with self._in_batch:
            batches.refresh()

    def _end(self, query: StreamingQuery) -> None:
        with self._in_batch:
            query.stop()
        error = query.exception()
        if error is not None and not self._stopping.is_set():
            with explain_failure(self._cluster):
                raise error
