"""By which rule the brokers place groups in offsets partitions, for the column `in_coordinator_partition`.

Each row of `offsets_partitions` has the rule and the number of partitions by which the partition's rows were placed. It
is written after these rows, so that the next job repeats an interrupted change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from offsetstream.coordinator.partitioning import partition_for
from offsetstream.errors import ClusterError
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.stream.partitions.rows import PartitionRow
from offsetstream.stream.state import place_groups
from offsetstream.tables.placement import JAVA, RECORDS, Latest, PlacementRule, latest_groups
from offsetstream.tables.store import Store
from offsetstream.tables.transaction import BatchId

_SAMPLE = 32  # groups, those that were written last
_MIN_GROUPS = 8  # with fewer, all may be in the partition of Kafka's hash by chance
_MAX_REQUESTED, _MIN_ANSWERS = 5, 2  # groups
_QUIET = timedelta(minutes=1)

# Returns the broker that coordinates each of the groups.
Ask = Callable[[Collection[str]], Mapping[str, int]]


@dataclass(frozen=True)
class Evidence:
    """Counts of the groups that were written last, from which the rule follows.

    `outside`: groups that are not in the partition of Kafka's hash. `has_moved_in`: whether a group has moved to it.
    `answered_hash`, `answered_other`: groups for which the brokers confirm, or deny, the partition of the hash.
    """

    groups: int
    outside: int
    has_moved_in: bool
    answered_hash: int = 0
    answered_other: int = 0

    @property
    def rule(self) -> PlacementRule | None:
        """The rule, or None if the counts do not show it."""
        if self.answered_other >= _MIN_ANSWERS:
            return RECORDS
        if self.answered_hash >= _MIN_ANSWERS:
            return JAVA
        if self.has_moved_in and not self.outside:
            return JAVA
        if self.groups < _MIN_GROUPS:
            return None
        if 4 * self.outside >= self.groups:
            return RECORDS
        return None if self.outside else JAVA


def evidence_of(found: Sequence[Latest], partitions: int, leaders: Mapping[int, int | None], ask: Ask) -> Evidence:
    """Count the groups in `found` (the latest first). `leaders`: the brokers that lead the partitions.

    If a group has records in two partitions, and the latest are in the partition of the hash, it has moved there: the
    brokers were restarted after the topic got more partitions. Groups that were written before do not count then.
    """
    homes = {each.group_id: partition_for(each.group_id, partitions) for each in found}
    inside = {each.group_id for each in found if each.offsets_partition == homes[each.group_id]}
    # If two partitions have the same time, either may be the latest.
    latest = {each.group_id: each for each in reversed(found)}
    moved_at = [each.newest for each in found if each.group_id in inside and each.copies > 1]
    since = max(moved_at) - _QUIET if moved_at else None
    outside = [
        each for each in latest.values() if each.group_id not in inside and (since is None or each.newest >= since)
    ]
    by_rule = {
        each.group_id: (leaders.get(homes[each.group_id]), leaders.get(each.offsets_partition))
        for each in outside[::-1]
    }
    distinct = [group_id for group_id, (by_hash, by_records) in by_rule.items() if by_hash != by_records]
    answers = ask(distinct[:_MAX_REQUESTED]) if distinct else {}
    return Evidence(
        len(inside) + len(outside),
        len(outside),
        bool(moved_at),
        sum(answers[group_id] == by_rule[group_id][0] for group_id in answers),
        sum(answers[group_id] == by_rule[group_id][1] for group_id in answers),
    )


class Placing:
    """Find the rule by which the brokers place groups, and place the rows by it. `ask` queries coordinators."""

    def __init__(self, tables: Store, book: PartitionBook, ask: Ask, say: Callable[[str], None]) -> None:
        self._tables = tables
        self._book = book
        self._ask = ask
        self._say = say

    @property
    def is_open(self) -> bool:
        """Whether the rule may still change: it is unknown, or holds only until the brokers are restarted."""
        return self._book.placement_rule != JAVA

    def begin(self) -> None:
        """Check the number of partitions at the start of a job."""
        counts = {row.partition_count for row in _known(self._book)} - {None, len(self._book.rows)}
        if not any(row.is_owned for row in _known(self._book)):
            self._book.placement_rule = None  # everything is loaded again: it may be another topic
        elif counts and self._book.placement_rule != RECORDS:
            self._book.placement_rule = RECORDS
            self._say(
                f"The topic has {len(self._book.rows)} partitions, not {max(filter(None, counts))}. Brokers use the "
                "old number until they are restarted. Until then, a group belongs to the partition with its "
                "latest records"
            )

    def find(self) -> bool:
        """Find the rule, if the tables and the brokers show it. Return whether it has changed."""
        if not self.is_open or not any(row.is_owned for row in self._book.rows.values()):
            return False
        before, partitions = self._book.placement_rule, len(self._book.rows)
        leaders = {number: row.coordinator_id for number, row in self._book.rows.items()}
        evidence = evidence_of(latest_groups(self._tables, _SAMPLE), partitions, leaders, self._answers)
        rule = evidence.rule
        if rule is None or rule == before:
            return False
        self._book.placement_rule = rule
        if rule == RECORDS:
            self._say(
                "The brokers do not place groups by Kafka's hash of their ids: of the "
                f"{evidence.groups} groups that were written last, {evidence.outside} are in another partition. "
                "A group belongs to the partition with its latest records"
            )
        elif before == RECORDS:
            self._say(f"The brokers now place groups by Kafka's hash of their ids and {partitions} partitions")
        return True

    def _answers(self, group_ids: Collection[str]) -> Mapping[str, int]:
        try:
            return self._ask(group_ids)
        except ClusterError:
            return {}

    def place(self, batch: BatchId) -> None:
        """Place all groups again if the rule has changed, and write the rule to the rows."""
        must_write = any(row.placement_rule != self._book.placement_rule for row in _known(self._book))
        if self._book.must_place_again:
            must_write = True
            rule = (
                "the partition of their latest records"
                if self._book.placed_by is None
                else f"Kafka's hash and {self._book.placed_by} partitions"
            )
            self._say(f"Placing all groups by {rule}")
            place_groups(self._tables, self._book.placed_by, batch)
        self._book.note_placement()
        if must_write:
            self._book.write(batch)


def _known(book: PartitionBook) -> list[PartitionRow]:
    return [row for row in book.rows.values() if row.load_state is not None]
