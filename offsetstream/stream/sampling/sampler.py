"""The thread that samples end offsets. It does not wait for batches, and batches do not wait for it.

Each round queries the end offsets of the cluster, and writes them. The tables of the samples, and those that say what
to sample, are opened once.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.cluster.log_ends import HIDDEN, Answers, LogEnds, RecordTimes, TopicPartitionKey
from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.coordinator.partitioning import Coordinator
from offsetstream.errors import LeaseError, UnauthorisedError, UnreachableError, first_line
from offsetstream.metrics.job_metrics import JobMetrics
from offsetstream.stream.sampling.log_tails import LogTails
from offsetstream.stream.sampling.sample_book import AT_LEAST_EVERY, SampleBook, Tail
from offsetstream.tables.create import require_cluster
from offsetstream.tables.names import ASSIGNMENTS, CLUSTER, COMMITTED_OFFSETS, END_OFFSETS, TOPIC_PARTITIONS
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import append_to, overwrite, overwrite_rows, read_rows
from offsetstream.tables.store import Snapshot, Store, Transaction
from offsetstream.tables.transaction import BatchId, again_on_conflict, transaction_of

_END_SECONDS = 5.0  # to wait for a round that a silent cluster delays
_SAMPLE, _WRITE = "sample", "write"
START_SECONDS = 60.0  # between two queries of log start offsets
CLUSTER_SECONDS = 600.0
_MAX_WAITING = 1_000_000  # rows; with more, start again from the tables, as after a crash
_MAX_TAILS = 200  # partitions a round from which a record is read, and as many whose transactions are queried
_MAX_UNEVEN = 2000  # partitions a round whose record times are queried: leaders read their logs for that
Rows = list[dict[str, Any]]
_OFFSETS = "SELECT DISTINCT topic, partition, committed_offset FROM rows WHERE committed_offset >= 0"
_NEAR = 1000  # offsets below an end: they may all be markers, or records of aborted transactions
_PAUSE = 20  # times the duration of a query: pause before the next one, so that it takes a twentieth of a core
_PARTITIONS = "SELECT DISTINCT topic, partition FROM rows WHERE topic IS NOT NULL AND partition IS NOT NULL"


class Sampler:
    """Sample every `seconds` after `start`. With 0, only write the settings of the cluster once.

    `metrics` count the rounds, and show if the cluster does not answer. A failure is logged once, and the next round
    tries again: it never ends the job.
    """

    def __init__(
        self,
        rounds: Rounds,
        seconds: float,
        say: Callable[[str], None],
        warn: Callable[[str], None],
        metrics: JobMetrics,
    ) -> None:
        self._rounds = rounds
        self._seconds = seconds
        self._say, self._warn = say, warn
        self._metrics = metrics
        self._batch = BatchId(0, -1)
        self._failing: set[str] = set()
        self._ended = threading.Event()
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Write nothing while the context lasts. Call `start` in it with the new checkpoint."""
        with self._writing:
            yield

    def start(self, checkpoint_id: int) -> None:
        """Start or continue with this checkpoint id for writes: it shuts this job out after another took over."""
        self._batch = BatchId(checkpoint_id, -1)
        if self._thread.ident is None:
            self._thread.start()

    def end(self, *, with_a_round: bool = False) -> None:
        """Stop. `with_a_round`: take a last sample before, so that queries after the end of the job have it."""
        if self._ended.is_set():
            return
        self._ended.set()
        if self._thread.ident is None:
            return
        self._thread.join(_END_SECONDS)
        if self._thread.is_alive():
            return  # the cluster does not answer; the next job adds what is not written
        if with_a_round and self._seconds:
            self._round()

    def _run(self) -> None:
        if not self._seconds:
            self._try(_WRITE, self._record_cluster)
            return
        while not self._ended.is_set():
            started = time.monotonic()
            self._round()
            self._ended.wait(max(0.0, started + self._seconds - time.monotonic()))

    def _round(self) -> None:
        if self._try(_SAMPLE, self._rounds.ask) and self._try(_WRITE, self._record):
            self._metrics.sampled()

    def _record(self) -> None:
        with self._writing:
            self._rounds.write(self._batch)

    def _record_cluster(self) -> None:
        with self._writing:
            self._rounds.write_cluster(self._batch)

    def _try(self, action: str, step: Callable[[], None]) -> bool:
        try:
            step()
        except LeaseError:
            self._ended.set()  # the lease ends the job
            return False
        except Exception as error:  # any error: the job can run without samples for a while
            if isinstance(error, UnreachableError):
                self._metrics.answered(does_answer=False)
            if action not in self._failing:
                self._warn(f"Cannot {action} end offsets, retrying: {first_line(error)}")
            self._failing.add(action)
            return False
        if action in self._failing:
            self._failing.discard(action)
            self._say(f"Can {action} end offsets again")
        return True


class Rounds:
    """Sample end offsets into `topic_partitions` and, if new, into `end_offsets`.

    `warn` gets a line, once, for topics that the user may not see. Without `tails`, only end offsets are queried. Raise
    ClusterError, TablesError, and LeaseError after a later job has written to the tables. Rows that cannot be written
    stay in `book` for the next round. `looks_every`: time between two samples; None if the job runs once.
    """

    def __init__(
        self,
        tables: Store,
        cluster: LogEnds,
        coordinator: Coordinator,
        warn: Callable[[str], None],
        looks_every: timedelta | None = None,
        tails: LogTails | None = None,
    ) -> None:
        self._tables = tables
        self._cluster = cluster
        self._coordinator = coordinator
        self._warn = warn
        self._interval_ms = looks_every and looks_every // timedelta(milliseconds=1)
        self._tails = tails
        self._sample_tables = SampleTables(tables)
        self.book = SampleBook()
        self._positions: Positions | None = None
        self._asked_starts_at = self._observed_at = -CLUSTER_SECONDS
        self._cluster_row: dict[str, Any] | None = None  # as it was written
        self._is_refused = False
        self._hidden: set[str] = set()

    def ask(self) -> None:
        """Query the end offsets. The positions are read before, so that no lag is negative."""
        if len(self.book.waiting) > _MAX_WAITING:  # they cannot be written
            self.book, self._positions = SampleBook(), None
        positions = self._opened()
        sampled_at, started = datetime.now(UTC), time.monotonic()
        wanted = positions.wanted()
        asks_starts = started - self._asked_starts_at >= START_SECONDS
        answers = self._cluster.ends(wanted, {} if asks_starts else self.book.starts)
        if asks_starts:
            self._asked_starts_at = started
        self.book.take(answers, sampled_at, self._record_times(answers, sampled_at))
        if self._tails is not None:
            self._ask_tails(self._tails, positions, sampled_at)
        self._warn_of_hidden_topics()

    def _ask_tails(self, tails: LogTails, positions: Positions, sampled_at: datetime) -> None:
        """Query what end offsets do not show: records below ends close to groups, and blocking transactions."""
        starts = dict(islice(positions.within(dict(self.book.tails(sampled_at))).items(), _MAX_TAILS))
        self.book.take_records(starts, tails.first_readable(starts), sampled_at)
        blocked = self.book.blocked(sampled_at)[:_MAX_TAILS]
        self.book.take_blocking(blocked, tails.holders(blocked), sampled_at)

    def write(self, batch: BatchId) -> None:
        """Write new rows to `end_offsets`, then `topic_partitions`, and every ten minutes `cluster` if it changed.

        In this order nothing is missing if the job is killed in between: the history comes first.
        """
        if self.book.waiting:
            self._sample_tables.write_end_offsets(self.book.waiting, batch)
            self.book.waiting = []
        self._sample_tables.write_topic_partitions(self.book.rows(), batch)
        self.write_cluster(batch)

    def write_cluster(self, batch: BatchId) -> None:
        """Write the row of `cluster`, which views need, if it has changed: at the start and every ten minutes.

        A setting of the brokers that the user may not see is null.
        """
        if time.monotonic() - self._observed_at < CLUSTER_SECONDS:
            return
        retention, interval = self._retention()
        row = {
            "cluster_id": self._cluster.cluster_id(),
            "group_coordinator": self._coordinator,
            "offsets_retention_ms": retention,
            "offsets_retention_check_interval_ms": interval,
            "sample_interval_ms": self._interval_ms,
            "ended_at": None,
        }
        if row != self._cluster_row:
            overwrite_rows(self._tables, CLUSTER, [row | {"observed_at": datetime.now(UTC)}], batch)
            self._cluster_row = row
        self._observed_at = time.monotonic()

    def _retention(self) -> tuple[int | None, int | None]:
        try:
            return self._cluster.offsets_retention()
        except UnauthorisedError as error:
            if not self._is_refused:
                self._warn(f"Cannot read offsets.retention.minutes of the brokers: {error}")
            self._is_refused = True
            return None, None

    def _record_times(self, answers: Answers, sampled_at: datetime) -> dict[TopicPartitionKey, RecordTimes]:
        with_changed_rate = islice(self.book.with_changed_rate(answers, sampled_at), _MAX_UNEVEN)
        return self._cluster.record_times({place: round(at.timestamp() * 1000) for place, at in with_changed_rate})

    def _opened(self) -> Positions:
        if self._positions is None:
            require_cluster(self._tables, self._cluster.cluster_id())
            self.book.recall(*read_samples(self._tables))
            self._positions = Positions(self._tables)
        return self._positions

    def _warn_of_hidden_topics(self) -> None:
        hidden = {place.topic for place, each in self.book.partitions.items() if each.error == HIDDEN} - self._hidden
        if hidden:
            self._hidden |= hidden
            more = f" and {len(hidden) - 1} more" if len(hidden) > 1 else ""
            self._warn(
                f"The ends of the topic {min(hidden)}{more} are not sampled: this user lacks DESCRIBE on it. "
                "See docs/reference/rights.md for the rights of each command"
            )


def read_samples(tables: Store) -> tuple[Rows, Mapping[TopicPartitionKey, Mapping[str, Any]]]:
    """Return the rows of `topic_partitions`, and the last row of each partition in `end_offsets`.

    Only the end of `end_offsets` is read: a sampled partition has a row there at least every ten minutes.
    """
    rows = read_rows(tables.open(TOPIC_PARTITIONS))
    times = [row["sampled_at"] for row in rows if row["sampled_at"] is not None]
    if not times:
        return rows, {}
    since = max(times) - AT_LEAST_EVERY - timedelta(minutes=5)
    query = (
        "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY topic, partition ORDER BY sampled_at DESC) AS newer "  # noqa: S608 - our own
        f"FROM rows WHERE sampled_at >= TIMESTAMP '{since:%Y-%m-%dT%H:%M:%SZ}') WHERE newer = 1"
    )
    found = tables.open(END_OFFSETS).query(query).read_all().to_pylist()
    return rows, {TopicPartitionKey(row["topic"], row["partition"]): row for row in found}


class SampleTables:
    """The two tables, opened once. On an object store, each opening reads the table's log since its checkpoint."""

    def __init__(self, tables: Store) -> None:
        self._tables = tables
        self._opened: dict[str, _OpenTable] = {}

    @again_on_conflict
    def write_topic_partitions(self, rows: Collection[Mapping[str, Any]], batch: BatchId) -> None:
        """Replace all rows of the table."""
        with self._write(TOPIC_PARTITIONS, batch) as (table, transaction):
            overwrite(table, rows, transaction)

    @again_on_conflict
    def write_end_offsets(self, rows: Sequence[Mapping[str, Any]], batch: BatchId) -> None:
        """Append the rows as one file."""
        schema = load_schema(END_OFFSETS).unsigned.arrow
        new = pa.Table.from_pylist([dict(row) for row in rows], schema=schema)
        with self._write(END_OFFSETS, batch) as (table, transaction):
            append_to(table, new, batch, transaction)

    @contextmanager
    def _write(self, name: str, batch: BatchId) -> Iterator[tuple[Snapshot, Transaction]]:
        opened = self._opened.pop(name, None)
        if opened is None:  # the first write, or the last one failed: somebody may have recreated the table
            opened = _OpenTable(self._tables.open(name))
        else:
            opened.table.refresh()
        before, transaction = opened.table.version, opened.transaction(batch)
        yield opened.table, transaction
        # If another write came in between, it is unknown which transaction is the last.
        opened.written = (before + 1, transaction) if opened.table.version == before + 1 else None
        self._opened[name] = opened


@dataclass
class _OpenTable:
    """An open table, with its version and transaction after our last write: finding that one means reading the log."""

    table: Snapshot
    written: tuple[int, Transaction] | None = None

    def transaction(self, batch: BatchId) -> Transaction:
        if self.written is not None and self.written[0] == self.table.version:
            app_id, last = self.written[1]
            if last >> 32 == batch.checkpoint_id:
                return Transaction(app_id, last + 1)
        return transaction_of(self.table, batch)


class Positions:
    """The partitions to sample: those with a commit or an assignment, and all offsets partitions.

    A table is read again only when its version has changed.
    """

    def __init__(self, tables: Store) -> None:
        self._tables = {name: _TablePartitions(tables.open(name)) for name in (COMMITTED_OFFSETS, ASSIGNMENTS)}
        self._empty_for: tuple[int, Mapping[TopicPartitionKey, Tail]] = -1, {}
        self._paused_until = 0.0

    def wanted(self) -> Mapping[str, set[int] | None]:
        """Return the partitions of each topic to sample now; None: all."""
        found = defaultdict[str, set[int]](set)
        for each in self._tables.values():
            for topic, partition in each.partitions():
                found[topic].add(partition)
        return {**found, OFFSETS_TOPIC: None}

    def within(self, tails: Mapping[TopicPartitionKey, Tail]) -> dict[TopicPartitionKey, int]:
        """Return the greatest committed offset near the end of each tail, as of the last call of `wanted`.

        Return nothing if the last query was so recent that another one would use too much time.
        """
        started, table = time.monotonic(), self._tables[COMMITTED_OFFSETS].table
        if not tails or started < self._paused_until or (table.version, tails) == self._empty_for:
            return {}
        wanted = pa.Table.from_pylist([place._asdict() | tail._asdict() for place, tail in tails.items()])
        rows = table.query(_OFFSETS).read_all()
        columns = [rows[name].cast(kind) for name, kind in (("topic", pa.string()), ("partition", pa.int64()))]
        offsets = pa.table([*columns, rows["committed_offset"]], names=rows.column_names)
        joined = offsets.join(wanted, ["topic", "partition"], join_type="inner")
        committed, upper = joined["committed_offset"], joined["upper"]
        is_within = pc.and_(pc.greater(committed, joined["lower"]), pc.less(committed, upper))
        near = joined.filter(pc.and_(is_within, pc.less_equal(pc.subtract(upper, committed), _NEAR)))
        found = near.group_by(["topic", "partition"]).aggregate([("committed_offset", "max")]).to_pylist()
        self._empty_for = (-1, {}) if found else (table.version, tails)
        self._paused_until = started + _PAUSE * (time.monotonic() - started)
        return {TopicPartitionKey(row["topic"], row["partition"]): row["committed_offset_max"] for row in found}


class _TablePartitions:
    def __init__(self, table: Snapshot) -> None:
        self.table = table
        self._version: int | None = None
        self._partitions: set[tuple[str, int]] = set()

    def partitions(self) -> set[tuple[str, int]]:
        self.table.refresh()
        if self.table.version != self._version:
            rows = self.table.query(_PARTITIONS).read_all()
            self._partitions = set(zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True))
            self._version = self.table.version
        return self._partitions
