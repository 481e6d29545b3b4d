"""The main loop: wait for the topic, take the lease, load, stream, and stop between two batches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from offsetstream.cluster.client import Cluster
from offsetstream.cluster.log_records import records_at
from offsetstream.cluster.permissions import readable_partitions, sees_all_topics
from offsetstream.cluster.rights import TOPIC_NAMES
from offsetstream.errors import NoOffsetsTopicError, UnauthorisedError
from offsetstream.stream.batch import BatchWriter
from offsetstream.stream.checkpoint import Checkpoint
from offsetstream.stream.failures import explain_failure, explain_lost_java
from offsetstream.stream.hanging import DEFAULT_MAX_TRANSACTION_TIMEOUT, HangingTransactions
from offsetstream.stream.heartbeat import Heartbeat
from offsetstream.stream.history import History
from offsetstream.stream.live import LiveStream, Signals
from offsetstream.stream.load import MAX_OFFSETS_AT_ONCE, Loader
from offsetstream.stream.lost_tables import mend_lost_tables
from offsetstream.stream.observer import Observer
from offsetstream.stream.partition_book import PartitionBook
from offsetstream.stream.progress import Progress
from offsetstream.stream.rewritten import RewrittenLogs
from offsetstream.stream.session import keep_few_consumers
from offsetstream.stream.source import KafkaSource
from offsetstream.stream.start import (
    delete_retention,
    largest_batch,
    last_checkpoint,
    next_checkpoint,
    partitions_to_load,
)
from offsetstream.stream.topic_book import TopicBook
from offsetstream.stream.upkeep import Upkeep
from offsetstream.tables.create import create_tables
from offsetstream.tables.lease import Lease
from offsetstream.tables.location import TablesLocation
from offsetstream.tables.upgrade import upgrade_tables
from offsetstream.tables.version import SCHEMA_VERSION
from offsetstream.tables.write import StateWrites, TableWriter

TOPIC_WAIT_SECONDS = 30.0


@dataclass(frozen=True)
class JobSettings:
    """What a user says of the job; ``trigger`` in Spark's words, such as ``10 seconds``."""

    bootstrap_server: str
    tables: TablesLocation
    checkpoint: str
    properties: dict[str, str] = field(default_factory=dict, repr=False)
    trigger: str = "10 seconds"
    once: bool = False
    coordinator: str | None = None  # new or classic; None asks the brokers
    max_offsets_per_trigger: int = MAX_OFFSETS_AT_ONCE
    max_transaction_timeout: timedelta = DEFAULT_MAX_TRANSACTION_TIMEOUT
    keeps_history: bool = True  # or only what a record that cannot be decoded was, and the events of partitions
    state_writes: StateWrites = StateWrites.AUTO


class Job:
    """One run of the streaming job, from start to a stop between two batches."""

    def __init__(
        self, settings: JobSettings, session: Callable[[], AbstractContextManager[SparkSession]], progress: Progress
    ) -> None:
        self._settings = settings
        self._session = session
        self._progress = progress
        self._signals = Signals(threading.Event(), threading.Event())
        self._cluster = Cluster(settings.bootstrap_server, settings.properties)

    def stop(self) -> None:
        """Ask the job to end after its present batch; may be called from a signal handler."""
        self._signals.stop.set()

    def _asked_to_stop(self, by: str) -> None:
        if not self._signals.stop.is_set():
            self._progress.say(f"{by} asks this job to stop")
        self.stop()

    def run(self) -> None:
        """Run until stopped or, with ``once``, until everything that is there now is applied."""
        partitions = self._wait_for_topic()
        if self._signals.stop.is_set():
            return
        cluster_id, coordinator = self._cluster.cluster_id(), self._coordinator()
        self._progress.say(
            f"Cluster {cluster_id}: {len(partitions)} offsets partitions, {coordinator} group coordinator"
        )
        if not sees_all_topics(self._cluster):
            self._progress.say(f"Without {TOPIC_NAMES}, {TOPIC_NAMES.without}")
        create_tables(self._settings.tables, cluster_id, coordinator)
        lease = Lease.acquire(self._settings.tables)
        with Heartbeat(lease, self._asked_to_stop, self._signals.reload.set):
            if upgraded := upgrade_tables(self._settings.tables):
                self._progress.say(f"{len(upgraded)} tables are upgraded to schema version {SCHEMA_VERSION}")
            with explain_lost_java(), self._session() as spark:
                self._work(spark, lease, partitions, coordinator)
        self._progress.say("Stopped between two batches" if self._signals.stop.is_set() else "Everything is applied")

    def _wait_for_topic(self) -> list[int]:
        while not self._signals.stop.is_set():
            try:
                return readable_partitions(self._cluster)
            except NoOffsetsTopicError as error:
                if self._settings.once:
                    raise
                self._progress.say(f"{error}: no group has committed yet; looking again in {TOPIC_WAIT_SECONDS:.0f} s")
                self._signals.stop.wait(TOPIC_WAIT_SECONDS)
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
        tables, keeps_history = self._settings.tables, self._settings.keeps_history
        writer = TableWriter(spark, tables, self._settings.state_writes)
        book, topics = PartitionBook(tables, partitions, keeps_history=keeps_history), TopicBook(tables)
        book.keep_history_from(lease.found.history_kept_from)
        if lost_tables := mend_lost_tables(book, tables):
            self._progress.say(f"Someone deleted {', '.join(sorted(lost_tables))}: all partitions are loaded anew")
        source = KafkaSource(self._settings.bootstrap_server, self._settings.properties)
        rewritten = RewrittenLogs(tables, book, partial(records_at, self._settings.bootstrap_server, source.properties))
        loader = Loader(
            writer, source, self._cluster, book, topics, rewritten, coordinator, keeps_history=keeps_history
        )
        hanging = HangingTransactions(self._settings.max_transaction_timeout, self._progress.say)
        observer = Observer(self._cluster, book, topics, rewritten, self._progress, hanging)
        keep_few_consumers(spark, largest_batch(self._cluster))
        retention, warning = delete_retention(self._cluster)
        if warning:
            self._progress.say(warning)
        ends = self._cluster.partition_ends(book.partitions)
        book.observe(ends)
        rewritten.begin()
        to_load = partitions_to_load(book.rows, ends, retention)
        if book.without_history:
            self._progress.say("Earlier runs kept no history: all is loaded anew, and history is complete from now on")
            to_load = sorted({*to_load, *book.without_history})
        upkeep = Upkeep(writer)
        checkpoint, lost = self._start(writer, to_load, loader, lease), []
        while not self._signals.stop.is_set():
            above = min(book.next_offsets.values(), default=0)
            history = History.open(writer, book.log_ids, above, keeps_records=keeps_history)
            batches = BatchWriter(writer, self._cluster, book, topics, history, coordinator, checkpoint)
            live = LiveStream(
                batches,
                book,
                observer,
                loader,
                lease,
                self._signals,
                self._progress,
                upkeep,
                checkpoint.checkpoint_id,
                retention,
            )
            with explain_failure(self._cluster):
                lost = live.run(self._query(source, book, checkpoint, spark))
            if not lost:
                if self._settings.once and not self._signals.stop.is_set():  # too short, maybe, for the main loop
                    upkeep.tend(nullcontext(), self._progress)
                return
            self._progress.say(f"The log of {len(lost)} offsets partitions lost records that were not read, or is new")
            checkpoint = self._load(lost, writer, loader, lease)

    def _start(self, writer: TableWriter, to_load: list[int], loader: Loader, lease: Lease) -> Checkpoint:
        root, tables = self._settings.checkpoint, self._settings.tables
        last = last_checkpoint(writer.spark, root, lease, tables)
        if last is not None and not to_load:
            self._progress.say(f"Going on with checkpoint {last.location}")
            loader.load_requested(lease, last.checkpoint_id, self._progress, self._signals.stop.is_set)
            return last
        return self._load(to_load, writer, loader, lease)

    def _load(self, partitions: list[int], writer: TableWriter, loader: Loader, lease: Lease) -> Checkpoint:
        """Load the partitions, and begin a new checkpoint behind them."""
        checkpoint = next_checkpoint(writer.spark, self._settings.checkpoint, lease, self._settings.tables)
        stopping = self._signals.stop.is_set
        loader.load_requested(lease, checkpoint.checkpoint_id, self._progress, stopping, also=partitions)
        self._progress.say(f"Starting checkpoint {checkpoint.location}")
        return checkpoint

    def _query(
        self, source: KafkaSource, book: PartitionBook, checkpoint: Checkpoint, spark: SparkSession
    ) -> DataStreamWriter:
        frame = source.stream(spark, book.next_offsets, self._settings.max_offsets_per_trigger)
        writer = frame.writeStream.queryName("offsetstream").option("checkpointLocation", checkpoint.location)
        if self._settings.once:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=self._settings.trigger)
