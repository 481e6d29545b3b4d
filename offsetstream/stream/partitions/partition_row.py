"""A row of `offsets_partitions`, and its comparison with the log on the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.stream.partitions.caught_up_marks import Mark
from offsetstream.tables.names import OWNED, LoadState
from offsetstream.tables.placement import PlacementRule
from offsetstream.tables.small_tables import as_utc


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
    def caught_up(self) -> Mark | None:
        """When the partition was caught up last; None if it never was."""
        return None if self.caught_up_at is None else Mark(self.caught_up_at, None, self.applied)

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
