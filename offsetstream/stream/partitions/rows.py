"""The rows of `offsets_partitions` in the driver's memory, and events of partitions: only one job writes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.metrics.job_metrics import ReplayPosition
from offsetstream.tables.names import OFFSETS_PARTITIONS, OWNED, PARTITION_EVENTS, UNLOADED, LoadState
from offsetstream.tables.placement import PlacementRule
from offsetstream.tables.small_tables import as_utc, insert_rows, read_rows
from offsetstream.tables.store import Store
from offsetstream.tables.transaction import BatchId


@dataclass(frozen=True)
class PartitionRow:
    """The state of an offsets partition. `docs/reference/tables.md` explains each column.

    `load_state` and nearly all other columns are None until the first load starts.
    """

    offsets_partition: int
    log_id: int = 0
    load_state: LoadState | None = None
    load_id: int | None = None
    load_started_at: datetime | None = None
    loaded_at: datetime | None = None
    load_end_offset: int | None = None
    next_offset: int | None = None
    next_decoded_offset: int | None = None
    applied_leader_epoch: int | None = None
    log_start_offset: int | None = None
    last_stable_offset: int | None = None
    high_watermark: int | None = None
    last_stable_offset_since: datetime | None = None
    caught_up_at: datetime | None = None
    groups_count: int | None = None
    offsets_count: int | None = None
    coordinator_id: int | None = None
    coordinator_epoch: int | None = None
    coordinator_available: bool | None = None
    history_complete_from: datetime | None = None
    partition_count: int | None = None
    placement_rule: PlacementRule | None = None
    filters: str | None = None
    filtered_count: int | None = None

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> PartitionRow:
        """Convert a stored row. Missing columns become None; columns that a user added are ignored."""
        known: dict[str, Any] = {
            field.name: as_utc(value) if isinstance(value, datetime) else value
            for field in fields(cls)
            if (value := stored.get(field.name)) is not None
        }
        return cls(**known)

    @property
    def is_owned(self) -> bool:
        """Whether the tables have everything of the log up to `next_offset`."""
        return self.load_state == OWNED

    @property
    def applied(self) -> int:
        """The offset below which every record is applied; 0 if none is."""
        return self.next_offset or 0

    @property
    def loads(self) -> int:
        """The number of started loads."""
        return self.load_id or 0

    def is_other_log(self, ends: PartitionEnds) -> bool:
        """Return whether the log ends before the applied offset: it was truncated, or the topic was recreated."""
        return self.next_offset is not None and self.next_offset > ends.high_watermark

    def has_lost_records(self, ends: PartitionEnds) -> bool:
        """Return whether a stream cannot continue: the log starts after the applied offset or ends before it."""
        is_before = self.next_offset is not None and self.next_offset < ends.log_start_offset
        return is_before or self.is_other_log(ends)


class PartitionRows(Mapping[int, PartitionRow]):
    """The rows by partition. Only `set` and `learn` replace them.

    `gone`: the rows of partitions that the topic no longer has. `has_news`: whether `learn` has changed a row since the
    last write.
    """

    def __init__(self, tables: Store, partitions: Iterable[int]) -> None:
        stored = map(PartitionRow.of, read_rows(tables.open(OFFSETS_PARTITIONS)))
        found = {row.offsets_partition: row for row in sorted(stored, key=_position)}  # of duplicates the last counts
        self._rows = {number: found.pop(number, PartitionRow(number)) for number in partitions}
        self.gone = found
        self.has_news = True
        self._begin_logs_that_are_back(tables)

    def __getitem__(self, partition: int) -> PartitionRow:
        return self._rows[partition]

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def set(self, partition: int, **columns: Any) -> PartitionRow:
        """Set columns of a row, and return the new row. The caller writes the rows anyway."""
        self._rows[partition] = replace(self._rows[partition], **columns)
        return self._rows[partition]

    def learn(self, partition: int, **columns: Any) -> PartitionRow:
        """Set columns of a row, and return the new row. A change must be written: it sets `has_news`."""
        before = self._rows[partition]
        self.has_news |= self.set(partition, **columns) != before
        return self._rows[partition]

    def _begin_logs_that_are_back(self, tables: Store) -> None:
        """Start a new log for partitions that were gone and exist again."""
        new = {number for number, row in self._rows.items() if row.load_state is None}
        if not new or (len(new) == len(self._rows) and not self.gone):
            return  # all are known; or it is the first load; or the table was lost
        last = "SELECT offsets_partition, max(log_id) AS log_id FROM rows GROUP BY offsets_partition"
        for event in tables.open(PARTITION_EVENTS).query(last).read_all().to_pylist():
            if event["offsets_partition"] in new:
                self.set(event["offsets_partition"], log_id=event["log_id"] + 1)


def _position(row: PartitionRow) -> tuple[int, int, int]:
    return row.log_id, row.loads, row.applied


class LogIds(Mapping[int, int]):
    """A live mapping from offsets partition to log id: a new log in the book shows at once."""

    def __init__(self, rows: Mapping[int, PartitionRow]) -> None:
        self._rows = rows

    def __getitem__(self, partition: int) -> int:
        return self._rows[partition].log_id

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


_COMMON_COLUMNS = ("offsets_partition", "log_id", "load_id", "coordinator_id", "coordinator_epoch")


class PartitionEvents:
    """Events that are not written yet."""

    def __init__(self, tables: Store) -> None:
        self._tables = tables
        self._waiting: list[dict[str, Any]] = []

    def add(self, row: PartitionRow, event: str, **columns: Any) -> None:
        """Add an event. `row`: the partition after it."""
        copied = {name: getattr(row, name) for name in _COMMON_COLUMNS}
        self._waiting.append({"event": event, "source": "job", **copied, **columns})

    def write(self, batch: BatchId) -> None:
        """Write the events, if there are any."""
        if self._waiting:
            insert_rows(self._tables, PARTITION_EVENTS, self._waiting, batch)
            self._waiting.clear()


def partition_figures(rows: Iterable[PartitionRow], max_transaction_timeout: timedelta) -> ReplayPosition:
    """Return the current figures, for metrics and health checks. Any thread may ask.

    Records count up to the last stable offset that the job has seen. A partition is behind since it was caught up, or
    since its first load started.
    """
    now, found = datetime.now(UTC), list(rows)
    to_go = {row.offsets_partition: offsets_to_go(row) for row in found}
    behind = [row.caught_up_at or row.load_started_at or now for row in found if to_go[row.offsets_partition]]
    held = [row for row in found if row.high_watermark is not None]
    open_since = [row.last_stable_offset_since for row in found if row.last_stable_offset_since is not None]
    return ReplayPosition(
        by_state=Counter((row.load_state or UNLOADED).lower() for row in found),
        leaderless=sum(row.coordinator_available is False for row in found),
        behind_records=sum(to_go.values()),
        behind_seconds=max((max(0.0, (now - since).total_seconds()) for since in behind), default=0.0),
        blocked=len(open_since),
        blocked_records=sum((row.high_watermark or 0) - (row.last_stable_offset or 0) for row in held),
        hanging=sum(now - since >= max_transaction_timeout for since in open_since),
    )


def offsets_to_go(row: PartitionRow) -> int:
    """Return the number of offsets that the job has seen but not applied, up to the last stable offset."""
    applied = max(row.applied, row.log_start_offset or 0)
    return max(0, (row.last_stable_offset or 0) - applied)
