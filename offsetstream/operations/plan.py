"""What is to become of the offsets of groups, and what is to be said against it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from offsetstream.cluster.committed import CommittedOffset, Place

# What may be said against a change; of these `--despite` overrules those that only an operator can judge.
ACTIVE, TYPE, NO_TOPIC, UNKNOWN_LOG = "active-group", "group-type", "no-such-partition", "unknown-log"
NO_OFFSET, LONG_METADATA, CHANGED, MOVED = "no-offset", "long-metadata", "changed-group", "moved-group"
NO_GROUP, NOTHING = "no-such-group", "nothing-to-delete"
RECREATED, OUT_OF_RANGE, BEHIND, OPEN = "recreated-topic", "out-of-range", "tables-behind", "open-transaction"
OTHER_TIMES = "other-times"
JUDGED_BY_OPERATOR = (NO_GROUP, RECREATED, OUT_OF_RANGE, BEHIND, OPEN, OTHER_TIMES)


@dataclass(frozen=True)
class Change:
    """A partition of a group: what is committed there now and what is to be, None for nothing.

    `log_start` and `log_end` (the high watermark) are offsets, None where nobody told; `topic_id` is that of the live
    topic; `read_again`: how many records a group reads again where that is known of something else than offsets.
    """

    group_id: str
    topic: str
    partition: int
    present: CommittedOffset | None
    new: CommittedOffset | None
    log_start: int | None = None
    log_end: int | None = None
    topic_id: str | None = None
    read_again: int | None = None

    @property
    def place(self) -> Place:
        """Topic and partition."""
        return self.topic, self.partition

    @property
    def distance(self) -> int | None:
        """How many offsets are skipped; below zero how many are read again; None without an offset before or after."""
        if self.present is None or self.new is None or None in {self.present.offset, self.new.offset}:
            return None
        return (self.new.offset or 0) - (self.present.offset or 0)


@dataclass(frozen=True)
class Objection:
    """Why something should not be done to a group, or to one partition of it; `kind` is one of those above."""

    kind: str
    group_id: str
    place: Place | None
    told: str


@dataclass
class Plan:
    """Changes of groups, whole groups that are deleted, what is said against them, and what is worth knowing."""

    kind: str  # reset, import, undo, delete-offsets, delete-groups
    changes: list[Change] = field(default_factory=list)
    objections: list[Objection] = field(default_factory=list)
    deleted_groups: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def group_ids(self) -> list[str]:
        """The groups that something is to become of, in order."""
        return sorted({change.group_id for change in self.changes} | set(self.deleted_groups))

    def by_group(self) -> dict[str, list[Change]]:
        """Return the changes of each group that has some."""
        found: dict[str, list[Change]] = {}
        for change in self.changes:
            found.setdefault(change.group_id, []).append(change)
        return found

    def standing_objections(self, despite: Collection[str]) -> list[Objection]:
        """Return the objections that the operator has not overruled."""
        return [each for each in self.objections if each.kind not in despite or each.kind not in JUDGED_BY_OPERATOR]

    def without_groups(self, group_ids: Collection[str]) -> Plan:
        """Return the plan for the other groups."""
        return Plan(
            self.kind,
            [each for each in self.changes if each.group_id not in group_ids],
            [each for each in self.objections if each.group_id not in group_ids],
            [each for each in self.deleted_groups if each not in group_ids],
            self.notes,
        )
