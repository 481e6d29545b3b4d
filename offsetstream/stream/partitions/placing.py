"""How the brokers place groups, and what the state tables tell of it (`in_coordinator_partition`).

Each row of `offsets_partitions` has the rule, and the number of partitions, by which that was told in the partition's
rows. They are written after these, so that a change that was interrupted is made again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from offsetstream.coordinator.partitioning import partition_for
from offsetstream.errors import ClusterError
from offsetstream.stream.partitions.partition_book import PartitionBook
from offsetstream.stream.partitions.partition_row import PartitionRow
from offsetstream.stream.state.homes import place_groups
from offsetstream.tables.placement import JAVA, RECORDS, Latest, PlacementRule, written_last
from offsetstream.tables.store import Store
from offsetstream.tables.transaction import BatchId

_LOOKED_AT = 32  # groups, those that were written last
_FEW = 8  # groups; of fewer each may lie where Kafka's hash names it by chance
_ASKED_FOR, _ANSWERS = 5, 2  # groups
_QUIET = timedelta(minutes=1)

# Which broker coordinates each of the groups.
Ask = Callable[[Collection[str]], Mapping[str, int]]


@dataclass(frozen=True)
class Evidence:
    """What the groups that were written last tell: how many, how many of them outside the partition of Kafka's hash,
    and whether one has moved there from another; for how many brokers say that the hash holds, or that it does not.
    """

    groups: int
    outside: int
    has_moved_in: bool
    answered_hash: int = 0
    answered_other: int = 0

    @property
    def rule(self) -> PlacementRule | None:
        """The rule that holds, None where these do not tell."""
        if self.answered_other >= _ANSWERS:
            return RECORDS
        if self.answered_hash >= _ANSWERS:
            return JAVA
        if self.has_moved_in and not self.outside:
            return JAVA
        if self.groups < _FEW:
            return None
        if 4 * self.outside >= self.groups:
            return RECORDS
        return None if self.outside else JAVA


def evidence_of(found: Sequence[Latest], partitions: int, leaders: Mapping[int, int | None], ask: Ask) -> Evidence:
    """Return what the groups tell, the latest first; `leaders` are the partitions', which tell brokers' answers apart.

    A group with records in two partitions, the latest ones in that of the hash, has moved there: brokers have been
    restarted since the topic got more partitions. What was written before then tells nothing any more.
    """
    homes = {each.group_id: partition_for(each.group_id, partitions) for each in found}
    inside = {each.group_id for each in found if each.offsets_partition == homes[each.group_id]}
    votes = {each.group_id: each for each in reversed(found)}  # of two partitions at one time either may be the latest
    moved_at = [each.newest for each in found if each.group_id in inside and each.copies > 1]
    since = max(moved_at) - _QUIET if moved_at else None
    outside = [
        each for each in votes.values() if each.group_id not in inside and (since is None or each.newest >= since)
    ]
    told = {
        each.group_id: (leaders.get(homes[each.group_id]), leaders.get(each.offsets_partition))
        for each in outside[::-1]
    }
    apart = [group_id for group_id, (by_hash, by_records) in told.items() if by_hash != by_records]
    answers = ask(apart[:_ASKED_FOR]) if apart else {}
    return Evidence(
        len(inside) + len(outside),
        len(outside),
        bool(moved_at),
        sum(answers[group_id] == told[group_id][0] for group_id in answers),
        sum(answers[group_id] == told[group_id][1] for group_id in answers),
    )


class Placing:
    """Finds out by which rule the brokers place groups, and tells so in the rows; `ask` asks them for coordinators."""

    def __init__(self, tables: Store, book: PartitionBook, ask: Ask, say: Callable[[str], None]) -> None:
        self._tables = tables
        self._book = book
        self._ask = ask
        self._say = say

    @property
    def is_open(self) -> bool:
        """Whether there is something to find out: no rule is known, or one that ends with a restart of brokers."""
        return self._book.placement_rule != JAVA

    def begin(self) -> None:
        """Take in what the number of partitions, and whose logs they are, tell when a job begins."""
        counts = {row.partition_count for row in _known(self._book)} - {None, len(self._book.rows)}
        if not any(row.is_owned for row in _known(self._book)):
            self._book.placement_rule = None  # all is loaded anew: it may be another topic
        elif counts and self._book.placement_rule != RECORDS:
            self._book.placement_rule = RECORDS
            self._say(
                f"The topic has {len(self._book.rows)} partitions, not {max(filter(None, counts))}: until brokers are "
                "restarted they place groups as before; until then the partition with its latest records is a group's "
                "own one"
            )

    def find(self) -> bool:
        """Find out which rule holds, as far as that can be told; returns whether it is another one than before."""
        if not self.is_open or not any(row.is_owned for row in self._book.rows.values()):
            return False
        before, partitions = self._book.placement_rule, len(self._book.rows)
        leaders = {number: row.coordinator_id for number, row in self._book.rows.items()}
        evidence = evidence_of(written_last(self._tables, _LOOKED_AT), partitions, leaders, self._answers)
        rule = evidence.rule
        if rule is None or rule == before:
            return False
        self._book.placement_rule = rule
        if rule == RECORDS:
            self._say(
                "The brokers do not place groups by Kafka's hash of their ids: of the "
                f"{evidence.groups} groups that were written last, {evidence.outside} are in another partition. "
                "The partition with its latest records is a group's own one"
            )
        elif before == RECORDS:
            self._say(f"The brokers place groups by Kafka's hash of their ids and {partitions} partitions now")
        return True

    def _answers(self, group_ids: Collection[str]) -> Mapping[str, int]:
        try:
            return self._ask(group_ids)
        except ClusterError:
            return {}

    @property
    def is_untold(self) -> bool:
        """Whether the tables have rows that were placed by another rule, or number of partitions, than hold now."""
        return is_untold(self._book)

    def place(self, batch: BatchId) -> None:
        """Tell in the rows by which rule they are placed, and place them anew if that was another one."""
        is_to_be_written = any(row.placement_rule != self._book.placement_rule for row in _known(self._book))
        if self.is_untold:
            is_to_be_written = True
            how = (
                "their latest records" if self._book.placed_by is None else f"{self._book.placed_by} offsets partitions"
            )
            self._say(f"Placing all groups by {how}")
            place_groups(self._tables, self._book.placed_by, batch)
        self._book.note_placement()
        if is_to_be_written:
            self._book.write(batch)


def is_untold(book: PartitionBook) -> bool:
    """Tell whether the tables have rows that were placed by another rule, or number of partitions, than hold now."""
    by_records, count = book.placed_by is None, len(book.rows)
    return any(row.partition_count != count or (row.placement_rule == RECORDS) != by_records for row in _known(book))


def _known(book: PartitionBook) -> list[PartitionRow]:
    return [row for row in book.rows.values() if row.load_state is not None]
