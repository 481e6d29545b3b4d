"""Explain the expected differences between a log and a live broker, with sections of the reference."""

from __future__ import annotations

from offsetstream.tables.names import ASSIGNMENTS, COMMITTED_OFFSETS, GROUPS, OWNED
from offsetstream.verify.answers import Answers
from offsetstream.verify.difference import RECORDS, ROW, ROWS, Difference
from offsetstream.verify.table_lag import TablePosition
from offsetstream.verify.tables import TableRows

_NOT_IN_THE_LOG = {"PreparingRebalance", "CompletingRebalance"}


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
        if _is_cut(difference):
            return "librdkafka truncates text at the first NUL"
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


def _is_cut(difference: Difference) -> bool:
    ours, theirs = difference.in_tables, difference.other
    return isinstance(ours, str) and "\0" in ours and bool(ours.partition("\0")[0] == theirs)
