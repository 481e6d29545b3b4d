"""The book of the offsets partitions: the position of each, its loads, its coordinator, and the events of these.

The driver keeps the rows in memory, since only one job writes them. It writes them last in each batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.stream.partitions.clocks import Clocks, HistoryClaims, Mark, Marks, caught_up
from offsetstream.stream.partitions.coordinators import AppliedEpochs, Coordinators
from offsetstream.stream.partitions.rows import LogIds, PartitionEvents, PartitionRow, PartitionRows
from offsetstream.tables.filters import Filters
from offsetstream.tables.ledger import delete_entries, greatest_offsets
from offsetstream.tables.names import (
    CELL_TABLES,
    DECODED_LOGS,
    DECODED_TABLES,
    FAILED,
    LEDGER,
    LOADING,
    OFFSETS_PARTITIONS,
    OWNED,
    PARTITION_EVENTS,
    RECORD_TABLES,
    STATE_TABLES,
    UNLOADED,
)
from offsetstream.tables.placement import RECORDS
from offsetstream.tables.small_tables import clear_rows, first_offsets, overwrite_rows
from offsetstream.tables.store import Store
from offsetstream.tables.tally import Log
from offsetstream.tables.transaction import BatchId, batch_versions, last_checkpoint_id

_LOADED = {OFFSETS_PARTITIONS, *STATE_TABLES, *RECORD_TABLES}
_DECODED = {*DECODED_TABLES, DECODED_LOGS}


class PartitionBook:
    """The state of the offsets partitions, and the events that are not written yet.

    `keeps_history`: whether the job writes the history. Attributes:

    - `rows`: the current row of each partition.
    - `coordinators`: who coordinates them.
    - `claims`: since when their history is complete.
    - `log_ids`: their current logs.
    - `epochs`: the leader epochs of the last applied offsets.
    - `written`: where the tables have records beyond the applied offset.
    - `clocks`: the brokers' clock, as the records of the last batch or load show it.
    - `placement_rule`: how the brokers place groups, None if that is unknown.
    """

    def __init__(self, tables: Store, partitions: Iterable[int], *, keeps_history: bool = True) -> None:
        self._tables = tables
        self._rows = PartitionRows(tables, partitions)
        self.rows: Mapping[int, PartitionRow] = MappingProxyType(self._rows)
        self._events = PartitionEvents(tables)
        self._stable_ends, self._ends = Marks(), Marks()
        self.clocks = Clocks()
        self.coordinators = Coordinators(tables, self._rows, self._events)
        self.claims = HistoryClaims(self._rows, self.clocks, keeps_history=keeps_history)
        self.log_ids = LogIds(self._rows)
        self.epochs = AppliedEpochs(self._rows)
        self.written = WrittenOffsets(tables, self._rows)
        self.placement_rule = next((row.placement_rule for row in self._rows.values() if row.placement_rule), None)

    @property
    def partitions(self) -> list[int]:
        """The numbers of the offsets partitions, sorted."""
        return sorted(self._rows)

    @property
    def gone(self) -> list[int]:
        """The partitions that the tables have but the topic no longer has, until they are unloaded."""
        return list(self._rows.gone)

    @property
    def placed_by(self) -> int | None:
        """The number of partitions in Kafka's hash of group ids; None if the latest records decide (RECORDS)."""
        return None if self.placement_rule == RECORDS else len(self._rows)

    @property
    def must_place_again(self) -> bool:
        """Whether the tables have rows that were placed by another rule or number of partitions."""
        by_records, count = self.placed_by is None, len(self._rows)
        return any(
            row.partition_count != count or (row.placement_rule == RECORDS) != by_records
            for row in self._rows.values()
            if row.load_state is not None
        )

    @property
    def has_news(self) -> bool:
        """Whether the rows differ from those written last, apart from `caught_up_at`."""
        return self._rows.has_news

    @property
    def next_offsets(self) -> dict[int, int]:
        """The next offset to apply of each partition. Partitions without one are missing."""
        return {number: row.next_offset for number, row in self._rows.items() if row.next_offset is not None}

    def observe(self, ends: Mapping[int, PartitionEnds], *, with_leaders: bool = True) -> None:
        """Take the current offsets and leaders of the partitions (rule 6). Log files do not say who leads."""
        if with_leaders:
            self.coordinators.observe(ends)
        for number, seen in ends.items():
            self._rows.learn(
                number,
                log_start_offset=seen.log_start_offset,
                last_stable_offset=seen.last_stable_offset,
                high_watermark=seen.high_watermark,
                last_stable_offset_since=_blocked_since(self._rows[number], seen),
            )
            self._stable_ends.add(number, Mark(seen.asked_at, self.clocks.newest, seen.last_stable_offset))
            self._ends.add(number, Mark(seen.asked_at, self.clocks.newest, seen.high_watermark))
            self._note_if_caught_up(number)

    def advance(
        self, ends: Mapping[int, int], incomplete: Collection[int] = (), filtered: Mapping[int, int] | None = None
    ) -> None:
        """Record that everything below the offsets `ends` is applied.

        `incomplete`: partitions in which records were gone before the job read them. `filtered`: the number of filtered
        records by partition.
        """
        for number, count in (filtered or {}).items():
            self._rows.set(number, filtered_count=(self._rows[number].filtered_count or 0) + count)
        for number, end in ends.items():
            self.claims.advance(number, is_incomplete=number in incomplete)
            self._rows.set(number, next_offset=max(self._rows[number].applied, end))
            self._note_if_caught_up(number)

    def note_decoded(self, ends: Mapping[int, int | None]) -> None:
        """Record up to which offset the group records are in the decoded history; None: it starts again."""
        for number, end in ends.items():
            self._rows.set(number, next_decoded_offset=end)

    def _note_if_caught_up(self, partition: int) -> None:
        row = self._rows[partition]
        if row.is_owned:
            mark = self._stable_ends.reach(partition, row.applied)
            self._rows.set(partition, caught_up_at=mark.at if mark else row.caught_up_at)
            self._ends.reach(partition, row.applied)

    def behind_for(self, partition: int) -> timedelta:
        """Return how long ago the partition was caught up, by the clock that shows more; maximum if it never was."""
        mark = self._stable_ends.reached(partition) or caught_up(self._rows[partition])  # by an earlier job
        return timedelta.max if mark is None else mark.age(datetime.now(UTC), self.clocks.newest)

    def unread_since(self, partition: int) -> tuple[datetime, timedelta] | None:
        """Return since when, and for how long, records may not be applied; None if that is unknown.

        Unlike `behind_for`, this includes records that an open transaction blocks.
        """
        mark = self._ends.reached(partition)
        return None if mark is None else (mark.at, mark.age(datetime.now(UTC), self.clocks.newest))

    def start_log(self, partition: int) -> None:
        """Start a new log: it was truncated or recreated, or is read again. Its offsets mean other records now."""
        self._rows.set(
            partition,
            log_id=self._rows[partition].log_id + 1,
            next_offset=None,
            next_decoded_offset=None,
            load_state=UNLOADED,
            coordinator_epoch=None,  # a recreated topic counts them from the start
            last_stable_offset_since=None,
        )
        self._stable_ends.forget(partition)
        self._ends.forget(partition)
        self.epochs.forget(partition)
        self.coordinators.raised.pop(partition, None)

    def filter_by(self, filters: Filters) -> bool:
        """Apply these filters from now on. Return whether the tables were written with other filters.

        If so, all logs start again: their state is loaded with the new filters, and so is their history.
        """
        changed = [number for number, row in self._rows.items() if row.filters != filters.text]
        known = [number for number in changed if self._rows[number].load_state is not None]
        for number in known:
            self.start_log(number)
        for number in changed:
            self._rows.set(number, filters=filters.text, filtered_count=None)
        return bool(known)

    def start_load(self, ends: Mapping[int, int]) -> None:
        """Record that loads up to the offsets `ends` (exclusive) have started."""
        self.written.forget()
        for number, end in ends.items():
            now = datetime.now(UTC)
            row = self._rows.set(
                number,
                load_state=LOADING,
                load_id=self._rows[number].loads + 1,
                load_started_at=now,
                loaded_at=None,
                load_end_offset=end,
            )
            self._events.add(row, "load started", event_at=now)

    def finish_load(self, partition: int, records: int, groups: int, offsets: int, filtered: int = 0) -> None:
        """Record that the partition is loaded: everything below the end of the load is applied or filtered."""
        now, row = datetime.now(UTC), self._rows[partition]
        end, started_at = row.load_end_offset or 0, row.load_started_at or now
        is_behind = row.next_offset is None or row.next_offset < end
        self.claims.loaded(partition, started_at, is_behind=is_behind)
        counts: dict[str, int | None] = {"groups_count": groups, "offsets_count": offsets}
        counts["filtered_count"] = filtered if row.filters is not None else None
        self._rows.set(partition, load_state=OWNED, loaded_at=now, next_offset=max(row.applied, end), **counts)
        self._note_if_caught_up(partition)
        took = int((now - started_at).total_seconds() * 1000)
        results = {"records": records, "groups": groups, "offsets": offsets, "milliseconds": took}
        self._events.add(self._rows[partition], "loaded", event_at=now, **results)

    def fail_loads(self, reason: str) -> None:
        """Record that all loads which have started but not finished failed."""
        for number, row in self._rows.items():
            if row.load_state == LOADING:
                failed = self._rows.set(number, load_state=FAILED)
                self._events.add(failed, "load failed", event_at=datetime.now(UTC), detail=reason)

    def unload_all(self) -> bool:
        """Mark all partitions that were ever loaded to be loaded again. Return whether there are any."""
        known = [number for number, row in self._rows.items() if row.load_state is not None]
        for number in known:
            self._rows.set(number, load_state=UNLOADED)
        return bool(known)

    def unload_cut(self, partitions: Collection[int]) -> None:
        """Mark those of the partitions to be loaded again whose logs have lost records that are in the tables."""
        for table in CELL_TABLES:
            for number, first in first_offsets(self._tables, table).items():
                row = self._rows.get(number)
                if row is not None and number in partitions and row.is_owned and first < (row.log_start_offset or 0):
                    self._rows.learn(number, load_state=UNLOADED)

    def unload_gone(self) -> None:
        """Record that the tables have no more rows of partitions that are gone."""
        for row in self._rows.gone.values():
            self._events.add(
                row, "removed", event_at=datetime.now(UTC), detail="the topic has no such partition any more"
            )
        self._rows.gone.clear()

    def recall(self, partition: int, log_id: int, *, load_id: int = 0, next_offset: int = 0) -> None:
        """Take what another table shows of a partition, because the table of the book was lost.

        Of several calls, the greatest log id counts, and the greatest offset in that log; the greatest load id of all.
        """
        row = self._rows[partition]
        if log_id > row.log_id:
            row = self._rows.set(partition, log_id=log_id, next_offset=None)
        if log_id == row.log_id:
            row = self._rows.set(partition, next_offset=max(row.applied, next_offset) or None)
        self._rows.set(partition, load_id=max(row.loads, load_id) or None, load_state=UNLOADED)

    def note_placement(self) -> None:
        """Record that all rows of the tables are placed by the current rule and number of partitions."""
        for number in self._rows:
            self._rows.set(number, partition_count=len(self._rows), placement_rule=self.placement_rule)

    def write(self, batch: BatchId) -> None:
        """Write the events, then the rows: the last write of a batch."""
        self._events.write(batch)
        self.epochs.note()
        rows = [*self.coordinators.known_rows(), *self._rows.gone.values()]
        overwrite_rows(self._tables, OFFSETS_PARTITIONS, [vars(row) for row in rows], batch)
        self._rows.has_news = False


def _blocked_since(row: PartitionRow, seen: PartitionEnds) -> datetime | None:
    if seen.last_stable_offset >= seen.high_watermark:
        return None
    has_moved = row.last_stable_offset != seen.last_stable_offset
    return seen.asked_at if has_moved else row.last_stable_offset_since or seen.asked_at


class WrittenOffsets:
    """Reads the tables at the first call, and again only after `forget`. `rows`: those of the book."""

    def __init__(self, tables: Store, rows: Mapping[int, PartitionRow]) -> None:
        self._tables = tables
        self._rows = rows
        self._greatest: dict[Log, int] | None = None

    def forget(self) -> None:
        """Drop what was read: something may be written now."""
        self._greatest = None

    def ends(self) -> dict[int, int]:
        """Return the end (exclusive) of the records in the tables, if it is beyond the applied offset.

        A tombstone leaves no row in the state tables. So the end may be too low if there is no history.
        """
        if self._greatest is None:
            self._greatest = self._read()
        ends = {number: self._greatest.get((number, row.log_id), -1) + 1 for number, row in self._rows.items()}
        return {number: end for number, end in ends.items() if end > self._rows[number].applied}

    def _read(self) -> dict[Log, int]:
        above = min((row.applied for row in self._rows.values()), default=0)
        found: dict[Log, int] = {}
        # Without a history, only the state tables show what was written.
        for table in (*RECORD_TABLES, *CELL_TABLES):
            for log, offset in greatest_offsets(self._tables, table, above).items():
                found[log] = max(offset, found.get(log, -1))
        return found


def repair_lost_tables(book: PartitionBook, tables: Store) -> set[str]:
    """Return the tables that somebody deleted. If a load fills any of them, mark all partitions to be loaded.

    A table that was created again has no transaction of a job; every other one has at least that of the last
    checkpoint. The book is written at once: the next checkpoint gives the new tables a transaction. If a history table
    is missing, `history_complete_from` starts again. If `offsets_partitions` itself is missing, the other tables show
    the last log and load ids.
    """
    versions = batch_versions(tables)
    lost = {name for name, version in versions.items() if version is None} & (_LOADED | _DECODED)
    delete_entries(tables, lost & set(RECORD_TABLES))
    if not lost - _DECODED and not _has_decoded(book):
        return set()  # this job decodes nothing
    if not lost or lost >= _LOADED:
        return set()
    if lost & _DECODED:
        _empty_decoded(book, tables)
    if OFFSETS_PARTITIONS in lost:
        _recall(book, tables)
    if not book.unload_all():
        return set()  # a first job was killed while it shut out older checkpoints
    if lost & set(RECORD_TABLES):
        book.claims.withdraw()
    book.write(BatchId(last_checkpoint_id(tables), -1))
    return lost


def is_ledger_lost(tables: Store) -> bool:
    """Return whether the other tables were written before, but the ledger of the history was not."""
    versions = batch_versions(tables)
    return versions.pop(LEDGER) is None and any(version is not None for version in versions.values())


def _has_decoded(book: PartitionBook) -> bool:
    return any(row.next_decoded_offset is not None for row in book.rows.values())


def _empty_decoded(book: PartitionBook, tables: Store) -> None:
    """Clear all tables of the decoded history, so that they are derived again from the records."""
    for name in _DECODED:
        clear_rows(tables, name)
    book.note_decoded(dict.fromkeys(book.rows))


def _recall(book: PartitionBook, tables: Store) -> None:
    """Fill the rows of an empty book with the last log id and load id of each partition in the other tables."""
    for row in _greatest(tables, PARTITION_EVENTS, "max(load_id) AS load_id"):
        if row["offsets_partition"] in book.rows:
            book.recall(row["offsets_partition"], row["log_id"], load_id=row["load_id"] or 0)
    for name in (*CELL_TABLES, *RECORD_TABLES):
        for row in _greatest(tables, name, "max(record_offset) + 1 AS next_offset"):
            if row["offsets_partition"] in book.rows:
                book.recall(row["offsets_partition"], row["log_id"], next_offset=row["next_offset"] or 0)


def _greatest(tables: Store, name: str, column: str) -> Iterator[dict[str, Any]]:
    query = f"SELECT offsets_partition, log_id, {column} FROM rows GROUP BY offsets_partition, log_id"  # noqa: S608 - the program's own SQL
    yield from tables.open(name).query(query).read_all().to_pylist()
