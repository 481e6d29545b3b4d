"""One attempt of the job: start at the tables' positions, load what must be loaded, then run query after query."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from pyspark.sql.streaming.readwriter import DataStreamWriter

from offsetstream.cluster.client import Cluster
from offsetstream.cluster.coordinators import CoordinatorLookup
from offsetstream.cluster.log_ends import LogEnds
from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.coordinator.partitioning import Coordinator
from offsetstream.errors import DoubledRowsError, UnreachableError
from offsetstream.maintenance.upkeep import Upkeep
from offsetstream.settings.kinds import length_of
from offsetstream.spark.session import limit_idle_consumers
from offsetstream.spark.source import KafkaSource
from offsetstream.stream.apply.batch import BatchWriter
from offsetstream.stream.apply.history import Sink
from offsetstream.stream.apply.load import Loader, LogSource
from offsetstream.stream.apply.raw_reader import RawReader, reads_raw
from offsetstream.stream.controls import Controls
from offsetstream.stream.lifecycle.checkpoint import Checkpoint, last_checkpoint, next_checkpoint
from offsetstream.stream.lifecycle.leaders import Leadership, partitions_text
from offsetstream.stream.lifecycle.live import (
    IDLE_REFRESH_SECONDS,
    REFRESH_SECONDS,
    LeadersChangedSinceStartError,
    LiveStream,
    Parts,
    PlacementChangedError,
)
from offsetstream.stream.monitor.broker_channel import Leaders
from offsetstream.stream.monitor.gaps import Gaps, lost_offsets
from offsetstream.stream.monitor.topics import TopicBook, TopicSettings
from offsetstream.stream.monitor.truncation import TruncationDetector, ends_of_epochs
from offsetstream.stream.monitor.watch import ClusterWatch, HangingTransactions, Observer
from offsetstream.stream.partitions.book import PartitionBook, is_ledger_lost, repair_lost_tables
from offsetstream.stream.partitions.clocks import partitions_to_load
from offsetstream.stream.partitions.placing import Placing
from offsetstream.stream.partitions.rows import partition_figures
from offsetstream.stream.sampling.log_tails import LogTails
from offsetstream.stream.sampling.sampler import Rounds, Sampler
from offsetstream.stream.settings import JobSettings
from offsetstream.tables.matching import require_no_doubled_rows
from offsetstream.tables.names import STATE_TABLES
from offsetstream.tables.store import COSTLY_CHECK_SECONDS
from offsetstream.tables.write import TableWriter


@dataclass(frozen=True)
class OffsetsTopic:
    """The topic that the job reads: its cluster, leaders and partitions, and the kind of group coordinator."""

    cluster: Cluster
    leaders: Leadership
    partitions: list[int]
    coordinator: Coordinator


class Attempt:
    """One attempt. It reads what it knows from the tables when it starts, and passes nothing to the next attempt."""

    def __init__(self, settings: JobSettings, writer: TableWriter, topic: OffsetsTopic, controls: Controls) -> None:
        self._settings = settings
        self._topic = topic
        self._controls = controls
        self._say, self._warn = controls.progress.say, controls.progress.warn
        self._writer, self._tables = writer, writer.tables
        self._book = self._opened_book()
        controls.metrics.watch(lambda: partition_figures(self._book.rows.values(), settings.max_transaction_timeout))
        self._source = KafkaSource(settings.bootstrap_server, settings.properties, len(topic.partitions))
        channels = Leaders(writer.spark, topic.cluster, settings.properties)
        self._watch = self._watched(channels)
        self._placing = Placing(self._tables, self._book, self._coordinators, self._say)
        self._gaps = Gaps(
            self._book,
            self._watch.settings,
            lambda ranges: lost_offsets(channels, self._book.coordinators.known_epochs, ranges),
        )
        self._sink = Sink(
            writer,
            self._book,
            self._watch.topics.names,
            topic.coordinator,
            filters=settings.filters,
            most_at_once=settings.max_offsets_per_trigger,
        )
        reader = RawReader(channels) if reads_raw(settings.load_by, writer.spark) else None
        self._loader = Loader(self._sink, self._watch, LogSource(reader, self._source, settings.load_by), controls)
        measured = controls.metrics.table if settings.metrics_port else None
        self._upkeep = Upkeep(self._tables, measured, settings.keep_history)
        hanging = HangingTransactions(settings.max_transaction_timeout, self._say, self._warn)
        observer = Observer(self._watch, self._book, hanging, controls.progress, controls.metrics)
        self._parts = Parts(self._book, self._loader, observer, topic.leaders, self._upkeep, self._placing, controls)
        self._sampler = self._new_sampler()
        self.has_loaded = False

    def _new_sampler(self) -> Sampler:
        # A connection of its own, so that no batch waits for its requests.
        log_ends = LogEnds(self._settings.bootstrap_server, self._settings.properties, self._controls.is_stopping)
        seconds = self._settings.sample_interval
        if seconds and self._tables.is_costly:
            seconds = max(seconds, COSTLY_CHECK_SECONDS)
        interval = max(length_of(self._settings.trigger), timedelta(seconds=seconds or self._refresh_seconds))
        looks_every = None if self._settings.once else interval
        tails = LogTails(self._writer.spark, self._settings.bootstrap_server, self._settings.properties, self._warn)
        rounds = Rounds(self._tables, log_ends, self._topic.coordinator, self._warn, looks_every, tails)
        return Sampler(rounds, seconds, self._say, self._warn, self._controls.metrics)

    @property
    def _refresh_seconds(self) -> float:
        """Seconds between two records that an idle topic was checked: longer if samples show it or writes are slow."""
        return IDLE_REFRESH_SECONDS if self._settings.sample_interval or self._tables.is_costly else REFRESH_SECONDS

    def _coordinators(self, group_ids: Collection[str]) -> dict[str, int]:
        lookup = CoordinatorLookup(self._settings.bootstrap_server, self._settings.properties)
        return lookup.coordinator_ids(group_ids)

    def _opened_book(self) -> PartitionBook:
        book = PartitionBook(self._tables, self._topic.partitions, keeps_history=self._settings.history)
        book.claims.thinned_before(self._controls.lease.found.history_kept_from)
        if is_ledger_lost(self._tables):
            self._warn("The table history_ledger is missing: it is rebuilt from the present rows of the history")
        if lost_tables := repair_lost_tables(book, self._tables):
            self._warn(f"Someone deleted {', '.join(sorted(lost_tables))}: all partitions are loaded again")
        if book.filter_by(self._settings.filters):
            self._say("The filters have changed: all partitions are loaded again, and history is complete from now on")
        return book

    def _watched(self, channels: Leaders) -> ClusterWatch:
        cluster, topics = self._topic.cluster, TopicBook(self._tables)
        known_id, ends = topics.id_of(OFFSETS_TOPIC), partial(ends_of_epochs, channels)
        truncation = TruncationDetector(self._book, known_id, cluster.topic_id, ends)
        return ClusterWatch(cluster, topics, TopicSettings(cluster, self._warn), truncation)

    @property
    def positions(self) -> Mapping[int, int]:
        """The next offset to apply of each partition."""
        return self._book.next_offsets

    def run(self, *, may_continue: bool) -> None:
        """Work until the job is to stop or, with `once`, until everything is applied.

        `may_continue`: whether the query may continue from the last checkpoint, as after a clean stop. Raise
        ClusterError, and TopicChangedError if the topic has other partitions than at the start of the attempt.
        """
        self._watch.settings.look()
        limit_idle_consumers(self._writer.spark, self._watch.settings.largest_batch)
        readable = self._topic.leaders.readable(self._book.partitions)
        ends = self._topic.cluster.available_ends(readable)
        self._controls.metrics.answered(does_answer=True)
        self._book.observe(ends)
        self._watch.truncation.start_new_logs()
        self._watch.unload_forgotten(self._book)
        to_load = partitions_to_load(self._book.rows, ends, self._watch.settings.safe_retention)
        if missing := self._book.claims.missing:
            self._say(
                f"The history of {len(missing)} offsets partitions has gaps: they are loaded again, and it is complete "
                "from now on"
            )
            to_load = sorted({*to_load, *missing})
        to_load = sorted({*to_load, *self._doubled()})
        try:
            checkpoint = self._start(to_load, readable, may_continue=may_continue)
            self.has_loaded = True
            self._stream(checkpoint, readable)
            self._sampler.end(with_a_round=self._settings.once and not self._controls.is_stopping())
        finally:
            self._sampler.end()

    def _stream(self, checkpoint: Checkpoint, readable: list[int]) -> None:
        """Run one query after the other, each with its own checkpoint."""
        while not self._controls.is_stopping():
            query = self._query(checkpoint, readable)
            live = self._live(checkpoint)
            try:
                lost = live.run(query)
            except (LeadersChangedSinceStartError, PlacementChangedError) as error:
                self._warn(f"Starting another query: {error}")
                checkpoint = self._load([number for number in readable if not self._book.rows[number].is_owned])
                continue
            if not lost:
                if self._settings.once and not self._controls.is_stopping():
                    # The main loop may have had no time for this.
                    self._upkeep.tend(nullcontext(), self._controls.progress)
                return
            checkpoint = self._load(lost)

    def _doubled(self) -> set[int]:
        """Return the partitions with duplicate rows in a state table. `offsets_partitions` was repaired when read."""
        found: set[int] = set()
        for name in STATE_TABLES:
            try:
                require_no_doubled_rows(self._tables, name)
            except DoubledRowsError as error:
                self._warn(f"{error}: they are loaded again")
                found |= error.partitions & set(self._book.partitions)
        return found

    def _live(self, checkpoint: Checkpoint) -> LiveStream:
        above = min(self._book.next_offsets.values(), default=0)
        history = self._sink.open_history(checkpoint.no_batch, above)
        batches = BatchWriter(self._sink, history, self._gaps, self._watch)
        return LiveStream(
            self._parts,
            batches,
            checkpoint,
            refresh_seconds=self._refresh_seconds,
            most_at_once=self._settings.max_offsets_per_trigger,
        )

    def _start(self, to_load: list[int], readable: list[int], *, may_continue: bool) -> Checkpoint:
        root = self._settings.checkpoint
        self._placing.begin()
        self._placing.find()
        last = last_checkpoint(self._writer.spark, root, self._controls.lease, self._tables) if may_continue else None
        if last is None or to_load or self._book.gone or self._book.must_place_again or not last.reads(readable):
            return self._load(to_load)
        self._say(f"Continuing from checkpoint {last.location}")
        self._placing.place(last.no_batch)
        self._sampler.start(last.checkpoint_id)
        self._loader.load_requested(last.no_batch)
        return last

    def _load(self, partitions: list[int]) -> Checkpoint:
        """Load the partitions, and return a new checkpoint that starts after them."""
        root = self._settings.checkpoint
        with self._sampler.paused():
            checkpoint = next_checkpoint(self._writer.spark, root, self._controls.lease, self._tables)
            self._sampler.start(checkpoint.checkpoint_id)
        self._placing.place(checkpoint.no_batch)
        self._loader.unload_gone(checkpoint.no_batch)
        self._loader.load_requested(checkpoint.no_batch, partitions)
        if self._placing.find():
            self._placing.place(checkpoint.no_batch)
        self._say(f"Starting checkpoint {checkpoint.location}")
        return checkpoint

    def _query(self, checkpoint: Checkpoint, readable: list[int]) -> DataStreamWriter:
        """Return the query over the partitions that have a leader and are loaded."""
        rows, most = self._book.rows, self._settings.max_offsets_per_trigger
        start = {number: rows[number].applied for number in readable if rows[number].is_owned}
        if not start:
            raise UnreachableError("none of the offsets partitions that have a leader could be loaded")
        checkpoint.note_partitions(start)
        self._topic.leaders.read(start)
        if self._book.has_news:  # above all the leader epochs: a batch writes records of these or older ones
            self._book.write(checkpoint.no_batch)
        if self._topic.leaders.leaderless:
            self._warn(
                f"Continuing without {partitions_text(self._topic.leaders.leaderless)}, until they have a leader again"
            )
        frame = self._source.stream(self._writer.spark, start, most)
        name = f"offsetstream-{checkpoint.checkpoint_id}"  # an older query may still be ending
        writer = frame.writeStream.queryName(name)
        if self._settings.once:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=self._settings.trigger)
