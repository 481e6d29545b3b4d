"""The plan of an operation: its changes to committed offsets, and the objections to them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from offsetstream.cluster.answers import CommittedOffset, Place

# The kinds of objections. An operator can overrule those in JUDGED_BY_OPERATOR with `--despite`.
ACTIVE, TYPE, NO_TOPIC, UNKNOWN_LOG = "active-group", "group-type", "no-such-partition", "unknown-log"
NO_OFFSET, LONG_METADATA, CHANGED, MOVED = "no-offset", "long-metadata", "changed-group", "moved-group"
NO_GROUP, NOTHING = "no-such-group", "nothing-to-delete"
RECREATED, OUT_OF_RANGE, BEHIND, OPEN = "recreated-topic", "out-of-range", "tables-behind", "open-transaction"
OTHER_TIMES = "other-times"
JUDGED_BY_OPERATOR = (NO_GROUP, RECREATED, OUT_OF_RANGE, BEHIND, OPEN, OTHER_TIMES)


@dataclass(frozen=True)
class Change:
    """A change of one committed offset: the present one and the new one (None: no offset).

    `log_start` and `log_end` (the high watermark) are offsets, None if unknown. `topic_id` is the live topic's id.
    `read_again` is the number of records that the group reads again, if something other than the offsets tells it.
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
        """Offsets that the group skips, or reads again if negative. None if it has no offset before or after."""
        if self.present is None or self.new is None or None in {self.present.offset, self.new.offset}:
            return None
        return (self.new.offset or 0) - (self.present.offset or 0)

    def to_json(self) -> dict[str, Any]:
        """Return the change as plain values, with the offset before and after it."""
        return {
            "group": self.group_id,
            "topic": self.topic,
            "topic_id": self.topic_id,
            "partition": self.partition,
            "before": _offset_to_json(self.present),
            "after": _offset_to_json(self.new),
        }


def _offset_to_json(committed: CommittedOffset | None) -> dict[str, Any] | None:
    if committed is None:
        return None
    return {"offset": committed.offset, "leader_epoch": committed.leader_epoch, "metadata": committed.metadata}


@dataclass(frozen=True)
class Objection:
    """A reason against a change to a group, or to one of its partitions. `kind` is one of the constants above."""

    kind: str
    group_id: str
    place: Place | None
    told: str


@dataclass
class Plan:
    """Changes, groups to delete, objections to them, and notes for the operator."""

    kind: str  # reset, import, undo, delete-offsets, delete-groups
    changes: list[Change] = field(default_factory=list)
    objections: list[Objection] = field(default_factory=list)
    deleted_groups: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def group_ids(self) -> list[str]:
        """The groups that the plan changes or deletes, in order."""
        return sorted({change.group_id for change in self.changes} | set(self.deleted_groups))

    def by_group(self) -> dict[str, list[Change]]:
        """Return the changes by group."""
        changes: dict[str, list[Change]] = {}
        for change in self.changes:
            changes.setdefault(change.group_id, []).append(change)
        return changes

    def remaining_objections(self, despite: Collection[str]) -> list[Objection]:
        """Return the objections that `--despite` does not overrule."""
        return [each for each in self.objections if each.kind not in despite or each.kind not in JUDGED_BY_OPERATOR]

    def without_groups(self, group_ids: Collection[str]) -> Plan:
        """Return the plan without these groups."""
        return Plan(
            self.kind,
            [each for each in self.changes if each.group_id not in group_ids],
            [each for each in self.objections if each.group_id not in group_ids],
            [each for each in self.deleted_groups if each not in group_ids],
            self.notes,
        )
