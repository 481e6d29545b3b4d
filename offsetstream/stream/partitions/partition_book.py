"""The book of the offsets partitions: how far each is replayed, its loads, its coordinator, and the events of these.

The driver holds the rows in memory, since only one job writes them, and writes them last in each batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from offsetstream.cluster.client import PartitionEnds
from offsetstream.stream.partitions.applied_epochs import AppliedEpochs
from offsetstream.stream.partitions.caught_up_marks import SKEW, Clocks, Mark, Marks
from offsetstream.stream.partitions.log_ids import LogIds
from offsetstream.stream.partitions.written import WrittenOffsets
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import as_utc, insert_rows, overwrite_rows, read_rows, rows_per_partition
from offsetstream.tables.transaction import BatchId

TABLE = "offsets_partitions"
EVENTS = "partition_events"
_OF_EVERY_EVENT = ("offsets_partition", "log_id", "load_id", "coordinator_id", "coordinator_epoch")
_ENDS = ("log_start_offset", "last_stable_offset", "high_watermark")
LOADING, OWNED, FAILED, UNLOADED = "LOADING", "OWNED", "FAILED", "UNLOADED"


class PartitionBook:
    """The rows of ``offsets_partitions``, by partition, and the events that wait to be written.

    ``has_news``: whether the rows are others than those written last, but for the time of being caught up.
    ``epochs_raised``: partitions whose leader epoch rose, so that their log may have been cut (rule 5), with the
    coordinator and the epoch before. These are what is written until the log was looked at, so that the question is
    not lost if the job is killed meanwhile, or the cluster falls silent.
    ``epochs``: the leader epochs of what is applied. ``written``: how far the tables have more than that.
    ``keeps_history``: whether the job writes the history; one that does not ends what was complete of it.
    ``gone``: the rows of partitions that the topic has no longer, until they are unloaded.
    ``clocks``: what the records that were read last tell of the brokers' clock.
    """

    def __init__(self, tables: PathStore, partitions: Iterable[int], *, keeps_history: bool = True) -> None:
        self._tables = tables
        self._columns = load_schema(TABLE).column_names
        self._events: list[dict[str, Any]] = []
        self.has_news = True
        self.epochs_raised: dict[int, dict[str, Any]] = {}
        self.clocks = Clocks()
        self._stable_ends, self._ends = Marks(), Marks()
        self.rows = {number: self._empty(number) for number in partitions}
        self.gone: dict[int, dict[str, Any]] = {}
        for row in sorted(read_rows(DeltaTable(tables.table(TABLE))), key=_how_far):  # of doubled ones the last counts
            number = row["offsets_partition"]
            where = self.rows if number in self.rows else self.gone
            where[number] = self._empty(number) | row
        self._begin_logs_that_are_back()
        self.log_ids = LogIds(self.rows)
        self.epochs = AppliedEpochs(self.rows)
        self.written = WrittenOffsets(tables, self.rows)
        self._keeps_history = keeps_history
        if not keeps_history:
            for row in self.rows.values():
                row["history_complete_from"] = None

    def _empty(self, partition: int) -> dict[str, Any]:
        return dict.fromkeys(self._columns) | {"offsets_partition": partition, "log_id": 0}

    def _begin_logs_that_are_back(self) -> None:
        """Give a new log to partitions that were gone, and are there again."""
        new = {number: row for number, row in self.rows.items() if row["load_state"] is None}
        if not new or (len(new) == len(self.rows) and not self.gone):
            return  # all are known; or it is a first load, or a book that was lost
        events = QueryBuilder().register("events", DeltaTable(self._tables.table(EVENTS)))
        last = events.execute("SELECT offsets_partition, max(log_id) AS log_id FROM events GROUP BY offsets_partition")
        for seen in pa.table(last).to_pylist():
            if seen["offsets_partition"] in new:
                new[seen["offsets_partition"]]["log_id"] = seen["log_id"] + 1

    @property
    def partitions(self) -> list[int]:
        """The numbers of the offsets partitions, in order."""
        return sorted(self.rows)

    @property
    def next_offsets(self) -> dict[int, int]:
        """How far each partition is applied; partitions that never were are not there."""
        return {number: row["next_offset"] for number, row in self.rows.items() if row["next_offset"] is not None}

    @property
    def without_history(self) -> list[int]:
        """The loaded partitions of which an earlier job kept no history, and this one is to keep it."""
        rows = self.rows.items() if self._keeps_history else ()
        return [number for number, row in rows if row["load_state"] == OWNED and row["history_complete_from"] is None]

    def observe(self, ends: Mapping[int, PartitionEnds]) -> None:
        """Take in what the cluster says of the partitions: their ends, and who coordinates them (rule 6)."""
        now = datetime.now(UTC)
        before = {number: self._observe_coordinator(self.rows[number], seen) for number, seen in ends.items()}
        moved = [number for number, broker in before.items() if broker and self._is_elsewhere(number, broker)]
        self._unload(moved, before, now)
        for number, broker in before.items():
            if broker:
                event = "coordinator moved" if number in moved else "leader epoch changed"
                self._event(self.rows[number], event, source="broker", event_at=now, **broker)
                was = {name: broker[f"previous_{name}"] for name in ("coordinator_id", "coordinator_epoch")}
                self.epochs_raised.setdefault(number, was)
        for number, seen in ends.items():
            row = self.rows[number]
            held_since = _held_since(row, seen)
            self._change(row, {name: getattr(seen, name) for name in _ENDS} | {"last_stable_offset_since": held_since})
            self._stable_ends.add(number, Mark(seen.asked_at, self.clocks.newest, seen.last_stable_offset))
            self._ends.add(number, Mark(seen.asked_at, self.clocks.newest, seen.high_watermark))
            self._note_if_caught_up(row)

    def _observe_coordinator(self, row: dict[str, Any], seen: PartitionEnds) -> dict[str, Any] | None:
        """Take in who coordinates the partition; returns who did, if that is another broker or an older epoch."""
        before_id, before_epoch = row["coordinator_id"], row["coordinator_epoch"]
        epoch = seen.coordinator_epoch if seen.coordinator_epoch is not None else before_epoch
        if before_epoch is not None and epoch < before_epoch:
            return None  # the answer of a broker that does not know of the change yet
        if seen.coordinator_id is None:
            self.lose_coordinators([row["offsets_partition"]])
            return None
        now_is = {"coordinator_id": seen.coordinator_id, "coordinator_epoch": epoch}
        self._change(row, now_is | {"coordinator_available": True})
        if before_id is None or (before_id == seen.coordinator_id and before_epoch in {None, epoch}):
            return None
        return {"previous_coordinator_id": before_id, "previous_coordinator_epoch": before_epoch}

    def _is_elsewhere(self, partition: int, before: Mapping[str, Any]) -> bool:
        return bool(self.rows[partition]["coordinator_id"] != before["previous_coordinator_id"])

    def _unload(self, partitions: list[int], before: Mapping[int, Any], now: datetime) -> None:
        """Tell that coordinators have unloaded the partitions, with what the tables hold of them now."""
        if not partitions:
            return
        groups, offsets = (rows_per_partition(self._tables, table) for table in ("groups", "committed_offsets"))
        for number in partitions:
            row, counts = self.rows[number], {}
            if row["load_state"] == OWNED:  # else not all of them are in the tables
                counts = {"groups": groups.get(number, 0), "offsets": offsets.get(number, 0)}
                self._change(row, {f"{name}_count": count for name, count in counts.items()})
            self._event(row, "unloaded", source="broker", event_at=now, **before[number], **counts)

    @property
    def known_epochs(self) -> dict[int, int | None]:
        """The leader epochs of the partitions whose logs are known to be those of the tables; they are written so."""
        return {number: row["coordinator_epoch"] for number, row in self._known_rows().items()}

    def _known_rows(self) -> dict[int, dict[str, Any]]:
        return {number: row | self.epochs_raised.get(number, {}) for number, row in self.rows.items()}

    def lose_coordinators(self, partitions: Iterable[int]) -> None:
        """Note that no broker leads the partitions at present."""
        for number in partitions:
            self._change(self.rows[number], {"coordinator_available": False})

    def _change(self, row: dict[str, Any], columns: Mapping[str, Any]) -> None:
        self.has_news |= any(row[name] != value for name, value in columns.items())
        row |= columns

    def keep_history_from(self, instant: datetime | None) -> None:
        """Note that retention may have thinned the history from before the instant."""
        for row in self.rows.values() if instant else ():
            if row["history_complete_from"] is not None and row["history_complete_from"] < instant:
                self._change(row, {"history_complete_from": instant})

    def advance(self, ends: Mapping[int, int], incomplete: Collection[int] = ()) -> None:
        """Note that every record below the given offsets is applied; ``incomplete``: where some were gone unread."""
        for number, end in ends.items():
            row = self.rows[number]
            if number in incomplete or self._claims_the_future(row):
                row["history_complete_from"] = self.clocks.since(number, datetime.now(UTC))
            row["next_offset"] = max(row["next_offset"] or 0, end)
            self._note_if_caught_up(row)

    def _claims_the_future(self, row: Mapping[str, Any]) -> bool:
        """Tell whether the history's claim is of a time that no clock has reached: some record's could not be."""
        number, since = row["offsets_partition"], row["history_complete_from"]
        reached = self.clocks.since(number, datetime.now(UTC))
        return self.clocks.has_read(number) and since is not None and as_utc(since) - reached > SKEW

    def _note_if_caught_up(self, row: dict[str, Any]) -> None:
        if row["load_state"] == OWNED:
            mark = self._stable_ends.reach(row["offsets_partition"], row["next_offset"])
            row["caught_up_at"] = mark.at if mark else row["caught_up_at"]
            self._ends.reach(row["offsets_partition"], row["next_offset"])

    def behind_for(self, partition: int) -> timedelta:
        """Return for how long the partition may not have been caught up, by whichever clock says more."""
        row = self.rows[partition]
        known = Mark(as_utc(row["caught_up_at"]), None, row["next_offset"])  # of an earlier job
        return (self._stable_ends.reached(partition) or known).age(datetime.now(UTC), self.clocks.newest)

    def unread_since(self, partition: int) -> tuple[datetime, timedelta] | None:
        """Return since when, and for how long, there may be records that are not applied; None if nobody knows.

        Unlike :meth:`behind_for` this includes those that an open transaction holds back.
        """
        mark = self._ends.reached(partition)
        return None if mark is None else (mark.at, mark.age(datetime.now(UTC), self.clocks.newest))

    def begin_log(self, partition: int) -> None:
        """Note that the partition's log was truncated or recreated: offsets mean other records from now on."""
        row = self.rows[partition]
        row |= {"log_id": row["log_id"] + 1, "next_offset": None, "load_state": UNLOADED}
        row["coordinator_epoch"] = None  # a recreated topic counts them from the start
        row["last_stable_offset_since"] = None
        self._stable_ends.forget(partition)
        self._ends.forget(partition)
        self.epochs.forget(partition)
        self.epochs_raised.pop(partition, None)

    def take_epochs(self, partitions: Iterable[int]) -> None:
        """Note that the logs of the partitions are known to be those of their present leader epochs."""
        for number in partitions:
            self.has_news |= self.epochs_raised.pop(number, None) is not None

    def unload_gone(self) -> None:
        """Note that the tables hold nothing any more of partitions that are gone."""
        for row in self.gone.values():
            self._event(row, "removed", event_at=datetime.now(UTC), detail="the topic has no such partition any more")
        self.gone.clear()

    def start_load(self, ends: Mapping[int, int]) -> None:
        """Note that loads up to the given offsets (exclusive) have started."""
        self.written.forget()
        for number, end in ends.items():
            row = self.rows[number]
            row |= {
                "load_state": LOADING,
                "load_id": (row["load_id"] or 0) + 1,
                "load_started_at": datetime.now(UTC),
                "loaded_at": None,
                "load_end_offset": end,
            }
            self._event(row, "load started", event_at=row["load_started_at"])

    def finish_load(self, partition: int, records: int, groups: int, offsets: int) -> None:
        """Note that the partition is loaded: everything below the load's end is applied."""
        row = self.rows[partition]
        now = datetime.now(UTC)
        is_behind = row["next_offset"] is None or row["next_offset"] < row["load_end_offset"]
        if self._keeps_history and (is_behind or row["history_complete_from"] is None):
            # Of what the stream did not bring, compaction had taken its part before the load came.
            row["history_complete_from"] = self.clocks.since(partition, row["load_started_at"])
        row |= {
            "load_state": OWNED,
            "loaded_at": now,
            "next_offset": max(row["next_offset"] or 0, row["load_end_offset"]),
            "groups_count": groups,
            "offsets_count": offsets,
        }
        self._note_if_caught_up(row)
        took = int((now - row["load_started_at"]).total_seconds() * 1000)
        self._event(row, "loaded", event_at=now, records=records, groups=groups, offsets=offsets, milliseconds=took)

    def fail_loads(self, reason: str) -> None:
        """Note that the loads that have started and not finished failed."""
        for row in self.rows.values():
            if row["load_state"] == LOADING:
                row["load_state"] = FAILED
                self._event(row, "load failed", event_at=datetime.now(UTC), detail=reason)

    def _event(self, row: dict[str, Any], event: str, **columns: Any) -> None:
        copied = {name: row[name] for name in _OF_EVERY_EVENT}
        self._events.append({"event": event, "source": "job", **copied, **columns})

    def write(self, batch: BatchId) -> None:
        """Write the events, then the rows: the last write of a batch."""
        if self._events:
            insert_rows(self._tables, EVENTS, self._events, batch)
            self._events.clear()
        self.epochs.note()
        overwrite_rows(self._tables, TABLE, [*self._known_rows().values(), *self.gone.values()], batch)
        self.has_news = False


def _how_far(row: Mapping[str, Any]) -> tuple[int, int, int]:
    return row["log_id"], row["load_id"] or 0, row["next_offset"] or 0


def _held_since(row: Mapping[str, Any], seen: PartitionEnds) -> datetime | None:
    if seen.last_stable_offset >= seen.high_watermark:
        return None
    has_moved = row["last_stable_offset"] != seen.last_stable_offset
    since: datetime | None = row["last_stable_offset_since"]
    return seen.asked_at if has_moved or since is None else since
