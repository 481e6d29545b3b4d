"""Load log segments into tables of their own, without a broker: a broker's log directory, or a copy of some.

These tables end at the newest record of the log: all views take its time as now. They belong to the cluster "… (from
files)", so that no job mixes them with those of the live cluster.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from offsetstream.cluster.answers import PartitionEnds, TopicDescription
from offsetstream.cluster.rights import OFFSETS_TOPIC, TRANSACTION_STATE
from offsetstream.codec.batches import MAGIC, MAGIC_AT, Header
from offsetstream.codec.log_replicas import ReadableLog, cluster_ids, open_logs, topic_names
from offsetstream.codec.log_segments import LogPartition, Window, find_replicas, read_windows
from offsetstream.codec.wire import DecodeError
from offsetstream.errors import TablesError, UsageError
from offsetstream.metrics.job_metrics import JobMetrics
from offsetstream.progress import Progress
from offsetstream.spark.failures import explain_ended_java, explain_failure
from offsetstream.stream.apply.history import Sink
from offsetstream.stream.apply.load import Loader, LogSource
from offsetstream.stream.apply.raw_reader import in_pieces, raw_rows
from offsetstream.stream.controls import Controls, Heartbeat, Signals
from offsetstream.stream.monitor.topics import TopicBook
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.stream.partitions.clocks import SKEW
from offsetstream.stream.settings import MAX_OFFSETS_AT_ONCE, FilesSettings
from offsetstream.stream.stall import StallWatch
from offsetstream.tables.create import create_tables
from offsetstream.tables.lease import Lease, take_lease
from offsetstream.tables.names import CLUSTER, JOB_LEASE
from offsetstream.tables.placement import RECORDS
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import overwrite_rows
from offsetstream.tables.store import Store
from offsetstream.tables.transaction import BatchId, shut_out_older_everywhere
from offsetstream.tables.write import TableWriter

_INTERNAL_TOPICS = (OFFSETS_TOPIC, TRANSACTION_STATE, "__share_group_state")


class FilesLoad:
    """One load of log segments. It can be interrupted: the same load continues where it was.

    `places`: as for `find_replicas`. `names`: names of topic ids that the files do not have.
    """

    def __init__(
        self,
        settings: FilesSettings,
        places: Sequence[str],
        names: Mapping[str, str],
        session: AbstractContextManager[SparkSession],
        progress: Progress,
        stop: threading.Event,
    ) -> None:
        self._settings = settings
        self._places = places
        self._names = names
        self._session = session
        self._progress = progress
        self._signals = Signals(stop, threading.Event())

    def run(self) -> None:
        """Load all partitions of the files. Raises UsageError, SegmentError and TablesError."""
        found = find_replicas(self._places)
        size = sum(segment.size for replica in found for segment in replica.segments)
        self._progress.say(f"Reading the headers of all batches: {len(found)} replicas, {size / 2**20:,.0f} MiB")
        latest = datetime.now(UTC) + SKEW
        logs = open_logs(found, int(latest.timestamp() * 1000), self._progress.warn)
        cluster_id = self._cluster_id(found)
        names, store = {**topic_names(found), **self._names}, self._settings.store
        with explain_ended_java(), self._session as spark:
            tables = (store.read_by(spark) if store.needs_spark else store).for_job()
            create = partial(create_tables, tables, f"{cluster_id} (from files)", self._settings.coordinator)
            create([JOB_LEASE])
            lease = take_lease(tables, self._progress.say, self._signals.stop, force=self._settings.force)
            if lease is None:
                return
            with Heartbeat(lease, self._stop_requested, lambda: None, on_fault=self._progress.warn):
                create(None)
                tables.in_spark(spark).require_reachable()
                files = _Files(logs, cluster_id, TopicBook(tables), names)
                self._load(TableWriter(spark, tables), files, lease)

    def _stop_requested(self, by: str) -> None:
        self._signals.stop.set()
        self._progress.say(f"Stop requested by {by}")

    def _cluster_id(self, found: Sequence[LogPartition]) -> str:
        ids = cluster_ids(found)
        if len(ids) > 1:
            raise UsageError(f"the files are of several clusters ({', '.join(sorted(ids))}): give those of one")
        if not ids:
            self._progress.warn("No meta.properties beside the partitions' folders names the cluster: it is unknown")
        return next(iter(ids), "unknown")

    def _load(self, writer: TableWriter, files: _Files, lease: Lease) -> None:
        tables, checkpoint_id = writer.tables, lease.next_checkpoint_id(writer.tables)
        lease.use_checkpoint(checkpoint_id, None)
        batch = BatchId(checkpoint_id, -1)
        shut_out_older_everywhere(tables, batch)
        book = PartitionBook(tables, files.logs)
        self._require_own(book, files.logs)
        book.placement_rule = RECORDS  # the files may not have all partitions, so that Kafka's hash is not known
        names, coordinator = files.topics.names, self._settings.coordinator
        sink = Sink(writer, book, names, coordinator, most_at_once=MAX_OFFSETS_AT_ONCE)
        loader = Loader(sink, files, LogSource(SegmentReader(files.logs), None, "raw"), self._controls(lease))
        loader.load([number for number in files.logs if not book.rows[number].is_owned], batch)
        if self._signals.stop.is_set():
            self._progress.say("Stopped: the same command continues here")
            return
        self._end(tables, book, files, batch)

    def _require_own(self, book: PartitionBook, logs: Mapping[int, ReadableLog]) -> None:
        """Raise TablesError if the tables have other files than these."""
        ends = {number: row.load_end_offset for number, row in book.rows.items()}
        changed = [number for number, end in ends.items() if end not in (None, logs[number].last_stable_offset)]
        others = changed + book.gone
        if others:
            raise TablesError(
                f"{self._settings.tables} has partition {others[0]} from other files than these: name a new folder "
                "with --tables"
            )

    def _controls(self, lease: Lease) -> Controls:
        stalls = StallWatch(timedelta(0), self._progress.warn, lambda _: None)
        return Controls(lease, self._signals, self._progress, JobMetrics(), stalls)

    def _end(self, tables: Store, book: PartitionBook, files: _Files, batch: BatchId) -> None:
        """Record since when the history is complete, and that the tables end at the newest record."""
        for number, since in files.complete_since().items():
            book.claims.complete_since(number, since)
        book.note_placement()
        book.write(batch)
        row = {
            **dict.fromkeys(load_schema(CLUSTER).column_names),
            "cluster_id": files.cluster_id,
            "group_coordinator": self._settings.coordinator,
            "observed_at": datetime.now(UTC),
            "ended_at": files.ended_at,
        }
        overwrite_rows(tables, CLUSTER, [row], batch)
        self._progress.say(
            f"Everything is loaded. These tables end at {files.ended_at.isoformat(timespec='seconds')}, and 'now' "
            "means that time"
        )


class _Files:
    """The logs in files, as a load needs them. `ended_at`: the time of the newest record of all."""

    def __init__(
        self, logs: Sequence[ReadableLog], cluster_id: str, topics: TopicBook, names: Mapping[str, str]
    ) -> None:
        self.logs = {log.number: log for log in logs}
        self.cluster_id = cluster_id
        self.topics = topics
        self._names = names
        newest = [log.newest_ms for log in logs if log.newest_ms is not None]
        if not newest:
            raise UsageError("the files have no record")
        self.ended_at = _time(max(newest))

    safe_retention = timedelta.max  # files do not change while they are read

    def explained(self) -> AbstractContextManager[None]:
        return explain_failure(None)

    def find_logs(self, partitions: Collection[int], book: PartitionBook) -> dict[int, PartitionEnds]:
        ends = {number: self._ends(self.logs[number]) for number in partitions}
        book.observe(ends, with_leaders=False)
        return ends

    def _ends(self, log: ReadableLog) -> PartitionEnds:
        start, stable, high = log.replica.log_start_offset, log.last_stable_offset, log.high_watermark
        return PartitionEnds(start, stable, high, None, log.replica.epoch, self.ended_at)

    def refresh_topics(self, batch: BatchId) -> None:
        topics = [
            TopicDescription(topic_id, name, None, name in _INTERNAL_TOPICS) for topic_id, name in self._names.items()
        ]
        self.topics.observe(topics, batch)

    def require_same_topic(self) -> None:
        """Files have no other topic."""

    def complete_since(self) -> dict[int, datetime]:
        """Return since when each log has all records; at the latest since the end."""
        known = {number: log.complete_since_ms for number, log in self.logs.items()}
        oldest = min((each for each in known.values() if each is not None), default=None)
        # What is complete from its first offset on was empty before.
        known |= {number: oldest for number, log in self.logs.items() if not log.complete_from}
        return {number: self.ended_at if ms is None else _time(ms) for number, ms in known.items()}


class SegmentReader:
    """Reads partitions from their segments, as `RawReader` reads them from brokers."""

    way = "from files"

    def __init__(self, logs: Mapping[int, ReadableLog]) -> None:
        self._logs = logs

    def read(
        self, start: Mapping[int, int], end: Mapping[int, int], _epochs: Mapping[int, int | None], /
    ) -> Generator[pa.RecordBatch]:
        """Yield the committed records of each partition, with `RAW_SCHEMA`. Raises SegmentError."""
        yield from in_pieces(
            rows for number in start for rows in self._read(self._logs[number], start[number], end[number])
        )

    def _read(self, log: ReadableLog, at: int, end: int) -> Iterator[pa.Table]:
        for window in read_windows(log.replica.partition.segments, lambda _: None):
            try:
                yield from raw_rows(log.number, self._counting(log, window), at, end)
            except DecodeError:
                for frame in window.frames:
                    window.batch(frame)  # names the batch
                raise
            if window.frames:
                at = max(at, window.extent(window.frames[-1]).next_offset)
            if at >= end:
                return

    @staticmethod
    def _counting(log: ReadableLog, window: Window) -> Iterator[bytes]:
        """Yield the batches whose records are not aborted. Raises SegmentError."""
        for frame in window.checked():
            if frame.data[MAGIC_AT] != MAGIC or log.transactions.counts(Header.of(frame.data)):
                yield frame.data


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
