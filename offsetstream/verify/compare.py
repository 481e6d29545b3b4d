"""Compare the rows of the tables with a cluster's answers, until the records in flight have arrived.

Tables and cluster are never read at the same moment: `compare_until_settled` repeats the comparison. `Explanations`
explain the differences that are expected between a log and a live broker, with sections of the reference.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.cluster.client import Cluster, deletes_records
from offsetstream.errors import NoOffsetsTopicError, UnauthorisedError
from offsetstream.tables.names import ASSIGNMENTS, COMMITTED_OFFSETS, GROUPS, OWNED
from offsetstream.verify.difference import RECORDS, ROW, ROWS, Difference, Key, Row, row_differences
from offsetstream.verify.sources import Answers, Filtered, TableRows, kept_answers

KEYS = {
    "groups": ("group_id",),
    "group_members": ("group_id", "member_id"),
    "member_assignments": ("group_id", "member_id", "kind", "subtopology_id", "topic", "partition"),
    "committed_offsets": ("group_id", "topic", "partition"),
}
# Columns that an Admin client gets. A None from it is compared only for columns that it always gets.
COLUMNS = {
    "groups": (
        "group_type", "state", "is_simple", "protocol_type", "protocol", "group_epoch", "assignment_epoch",
        "member_count", "coordinator_id",
    ),
    "group_members": (
        "group_instance_id", "client_id", "client_host", "member_epoch", "is_classic_protocol", "process_id",
        "user_endpoint", "topology_epoch",
    ),
    "member_assignments": (),
    "committed_offsets": ("committed_offset", "leader_epoch", "metadata"),
}  # fmt: skip
_TOLD_BY_NONE = {"group_instance_id", "leader_epoch"}
_PAUSE_SECONDS = 2.0
_NOT_IN_THE_LOG = {"PreparingRebalance", "CompletingRebalance"}
_CURRENT = ("assigned", "active", "standby", "warmup")


@dataclass(frozen=True)
class Found:
    """A difference and its explanation, None if nothing explains it."""

    difference: Difference
    explanation: str | None


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison.

    `unreadable` are groups that the client cannot read, with its error. `filtered` is what the filters of the tables
    exclude. `unchanged_partitions` are partitions with differences in which a running job applied nothing during the
    comparison.
    """

    found: list[Found]
    groups: int
    unreadable: dict[str, str]
    standing: TablePosition
    unchanged_partitions: list[int]
    filtered: Filtered


@dataclass(frozen=True)
class _Round:
    """One of several comparisons: the position of the tables and the unexplained differences."""

    explanations: Explanations
    standing: TablePosition
    unexplained: frozenset[Difference]


def compare_until_settled(
    read_tables: Callable[[], TableRows],
    ask_cluster: Callable[[], Answers],
    ask_standing: Callable[[TableRows], TablePosition],
    seconds: float,
    check_records: Callable[[], list[Difference]] = list,
) -> Comparison:
    """Compare until no difference is unexplained, or for `seconds`. Unapplied records count as explained.

    A group that commits continuously is always some commits ahead of the tables. Without a job nothing is in flight.
    `check_records` returns the differences between the tables and their records.
    """
    deadline, rounds = None, list[_Round]()
    while True:
        tables, answers = read_tables(), ask_cluster()
        answers = kept_answers(answers, tables.partitions, tables.homes)
        standing = ask_standing(tables)
        explanations = Explanations(tables, answers, standing)
        present = [*differences(tables, answers), *check_records()]
        found = [Found(each, explanations.of(each)) for each in present]
        unexplained = frozenset(each.difference for each in found if each.explanation is None)
        rounds = [*rounds[:1], _Round(explanations, standing, unexplained)]
        deadline = deadline or time.monotonic() + seconds  # the first round alone cannot show what is in flight
        is_settled = not unexplained and not answers.gone  # a group that is gone must leave the tables, too
        if is_settled or time.monotonic() >= deadline:
            break
        time.sleep(_PAUSE_SECONDS)
    first, last = rounds[0], rounds[-1]
    if len(rounds) > 1:
        found = [Found(each.difference, each.explanation or _in_flight(each.difference, first, last)) for each in found]
    return Comparison(
        found,
        len(answers.groups),
        answers.unreadable,
        standing,
        _unchanged_partitions(found, first, last),
        answers.filtered,
    )


def _unchanged_partitions(found: list[Found], first: _Round, last: _Round) -> list[int]:
    """Return the partitions with unexplained differences in which a running job applied nothing."""
    if not last.standing.has_job or last is first:
        return []
    of_found = {last.explanations.partition_of(each.difference) for each in found if each.explanation is None}
    partitions = sorted(number for number in of_found if number is not None)
    return [number for number in partitions if last.standing.applied_nothing_since(first.standing, number)]


def _in_flight(difference: Difference, first: _Round, last: _Round) -> str | None:
    """Return why a difference will disappear: a job still applies records. None if it has already passed it."""
    if not last.standing.has_job or difference.column == ROWS:
        return None
    is_new = difference not in first.unexplained
    if difference.against == RECORDS:  # the tables were not read at the same moment
        return "it changed during the comparison" if is_new else None
    partition = last.explanations.partition_of(difference)
    if partition is None or not last.standing.lag(partition):
        return None
    if last.standing.applied_nothing_since(first.standing, partition):
        return None
    if not is_new and last.standing.has_passed(first.standing, partition):
        return None
    lag = last.standing.lag(partition)
    return f"the job is still applying records: the group's offsets partition is behind by {lag} offsets"


def differences(tables: TableRows, answers: Answers) -> list[Difference]:
    """Return every difference, by table and key, except for groups that disappeared during the query."""
    listed = {row["group_id"]: row["group_type"] for row in answers.groups}
    of_answers = {
        "groups": answers.groups,
        "group_members": answers.members,
        "member_assignments": answers.assignments,
        "committed_offsets": answers.offsets,
    }
    asked: dict[str, list[Row]] = {table: list(rows) for table, rows in tables.rows.items()}
    asked["groups"] = [_as_told(row, tables, listed) for row in tables.rows["groups"]]
    asked["member_assignments"] = list(_told_assignments(tables.rows["member_assignments"], answers, listed))
    # The log may have offsets without a group, but no coordinator returns them (reference 5.5). Clients drop negative
    # offsets.
    offsets = (row for row in tables.rows["committed_offsets"] if row["group_id"] in listed)
    asked["committed_offsets"] = [row for row in offsets if row["committed_offset"] >= 0]
    unseen = answers.unreadable.keys() | answers.gone
    found = [d for table, rows in of_answers.items() for d in _of_table(table, asked[table], rows)]
    return sorted((d for d in found if d.group_id not in unseen), key=lambda d: (d.table, str(d.key), d.column))


def _as_told(row: Row, tables: TableRows, listed: Mapping[str, str]) -> Row:
    """Return the group's row with its coordinator. Newer group types have a protocol type of the same name."""
    partition = tables.placement.of(row["group_id"])
    coordinator = tables.partitions[partition]["coordinator_id"] if partition is not None else None
    group_type = listed.get(row["group_id"], row["group_type"])
    protocol_type = row["protocol_type"] if group_type == "Classic" else group_type.lower()
    return {**row, "coordinator_id": coordinator, "protocol_type": protocol_type}


def _told_assignments(rows: Iterable[Row], answers: Answers, listed: Mapping[str, str]) -> Iterator[Row]:
    """Yield the assignments whose kind the cluster reports, for the members that it returned.

    Assignments of a streams group are tasks. No cluster reports partitions that wait for revocation.
    """
    with_target = {(row["group_id"], row["member_id"]) for row in answers.members if row.get("tells_target")}
    for row in rows:
        if row["kind"] in _CURRENT or (row["kind"] == "target" and (row["group_id"], row["member_id"]) in with_target):
            yield row if listed.get(row["group_id"]) != "Streams" else {**row, "topic": None}


def _of_table(table: str, in_tables: Iterable[Row], in_cluster: Iterable[Row]) -> Iterator[Difference]:
    alone, pairs = row_differences(table, KEYS[table], in_tables, in_cluster)
    yield from alone
    for key, ours, theirs in pairs:
        yield from _of_row(table, key, ours, theirs)


def _of_row(table: str, key: Key, ours: Row, theirs: Row) -> Iterator[Difference]:
    for column in COLUMNS[table]:
        told = theirs.get(column)
        if told is None and (column not in _TOLD_BY_NONE or column not in theirs):
            continue
        if ours[column] != told:
            yield Difference(table, KEYS[table], key, column, ours[column], told)


class Explanations:
    """What one comparison knows about its groups."""

    def __init__(self, tables: TableRows, answers: Answers, standing: TablePosition) -> None:
        self._tables = tables
        self._standing = standing
        self._live = {row["group_id"]: row for row in answers.groups}
        self._in_tables = {row["group_id"] for rows in tables.rows.values() for row in rows}
        self._offsets = {row["group_id"] for row in answers.offsets}
        self._bare = answers.filtered.bare

    def of(self, difference: Difference) -> str | None:
        """Return why the difference is expected; None if nothing explains it."""
        if difference.against == RECORDS or difference.column == ROWS:
            return None
        partition = self.partition_of(difference)
        if partition is not None:
            if self._standing.has_job and self._tables.partitions[partition]["load_state"] != OWNED:
                return "the group's offsets partition is not loaded yet"
            if self._standing.is_blocked(partition):
                return "an open transaction blocks the group's offsets partition (reference 10.1)"
            if self._standing.may_lack(partition) and (difference.column == ROW or difference.table == GROUPS):
                return (
                    "the offsets topic has cleanup.policy delete: a coordinator keeps records that retention deleted "
                    "until it moves or restarts (reference 10.5)"
                )
        if difference.column == "state" and difference.group_id in self._tables.not_validated:
            return "Kafka 4.1 does not write whether a streams group is ready (reference 5.10 item 11)"
        return self._of_group(difference)

    def partition_of(self, difference: Difference) -> int | None:
        """Return the offsets partition of the group whose row differs, None if the tables do not know it."""
        return None if difference.group_id is None else self._tables.placement.of(difference.group_id)

    def _of_group(self, difference: Difference) -> str | None:
        live = self._live.get(difference.group_id or "")
        is_commit = difference.table == COMMITTED_OFFSETS  # a commit is in the log at once, whatever the members do
        if live is not None and live["state"] in _NOT_IN_THE_LOG and not is_commit:
            return f"the group is {live['state']}, and a rebalance is in the log only when it ends (reference 4.9)"
        if live is not None and difference.group_id not in self._in_tables and self._was_never_written(live):
            if live["group_id"] in self._bare:
                return "all its offsets belong to filtered topics"
            return "only the coordinator knows a group without an offset (reference 5.9 row 6, 5.10 item 5)"
        if difference.table == ASSIGNMENTS and difference.key[4] in self._tables.deleted_topics:
            return "the topic was deleted, so no broker answers for it (reference 5.10 item 1)"
        return None

    def _was_never_written(self, live: dict[str, object]) -> bool:
        return live["state"] == "Empty" and live["group_type"] == "Classic" and live["group_id"] not in self._offsets


@dataclass(frozen=True)
class TablePosition:
    """The next offset to apply per offsets partition (`applied`), later end offsets (`ends`), and whether a job runs.

    `forgets`: whether retention deletes records of the topic, which a coordinator keeps until it moves or restarts.
    """

    applied: Mapping[int, int]
    ends: Mapping[int, PartitionEnds]
    has_job: bool
    forgets: bool = False

    def lag(self, partition: int) -> int:
        """Return the number of offsets below the last stable offset that are not applied."""
        end = self.ends[partition].last_stable_offset if partition in self.ends else 0
        return max(0, end - self.applied.get(partition, 0))

    @property
    def lags(self) -> dict[int, int]:
        """Return the partitions that are behind, with the number of offsets."""
        return {number: lag for number in sorted(self.ends) if (lag := self.lag(number))}

    def is_blocked(self, partition: int) -> bool:
        """Return whether everything readable is applied and an open transaction blocks the rest."""
        if partition not in self.ends or self.lag(partition):
            return False
        end = self.ends[partition]
        return end.last_stable_offset < end.high_watermark

    def may_lack(self, partition: int) -> bool:
        """Return whether the log may lack records that a coordinator or the tables still have."""
        return self.forgets and partition in self.ends and self.ends[partition].log_start_offset > 0

    def has_passed(self, other: TablePosition, partition: int) -> bool:
        """Return whether everything that the log had in `other` is applied."""
        return partition not in other.ends or (
            self.applied.get(partition, 0) >= other.ends[partition].last_stable_offset
        )

    def applied_nothing_since(self, before: TablePosition, partition: int) -> bool:
        """Return whether the partition was behind in `before` and nothing was applied since."""
        return before.lag(partition) > 0 and self.applied.get(partition) == before.applied.get(partition)


def read_position(cluster: Cluster, has_job: Callable[[], bool], tables: TableRows) -> TablePosition:
    """Read the end offsets of the log and whether a job runs. Call it after reading the tables and the groups."""
    applied = {number: row["next_offset"] or 0 for number, row in tables.partitions.items()}
    try:
        ends = _ends(cluster, sorted(applied.keys() & set(cluster.topic_partitions())))
    except NoOffsetsTopicError:  # no group ever committed
        ends = {}
    return TablePosition(applied, ends, has_job(), _forgets(cluster))


def _forgets(cluster: Cluster) -> bool:
    try:
        return deletes_records(cluster.topic_settings())
    except (UnauthorisedError, NoOffsetsTopicError):
        return False


def _ends(cluster: Cluster, partitions: list[int]) -> dict[int, PartitionEnds]:
    """Return the end offsets; the last stable offset is read later than the high watermark.

    A single request reads them in the opposite order, so a commit in between would look like an open transaction.
    """
    first, later = cluster.partition_ends(partitions), cluster.partition_ends(partitions)
    return {
        number: replace(end, last_stable_offset=later[number].last_stable_offset)
        for number, end in first.items()
        if number in later
    }
