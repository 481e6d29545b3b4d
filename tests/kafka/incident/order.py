"""Compares sequences in views with the book: offsets minute by minute, and partitions from member to member."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.kafka.incident.book import Book, Cell, Commit
from tests.kafka.incident.comparison import Rows, cell_of

_MINUTE_MS = 60_000


def wrong_minutes(rows: Rows, book: Book) -> Iterator[str]:
    """Yield a message for each row of `lag_history` whose offset was not the committed one when the minute ended."""
    commits = defaultdict[Cell, list[Commit]](list)
    for commit in book.commits:
        commits[commit.cell].append(commit)
    lost = {commit.cell: commit for commit in book.lost}
    for row in rows:
        cell, end_ms = cell_of(row), row["minute"] // 1000 + _MINUTE_MS
        commits_of_cell = commits[cell]
        possible = {
            *_possible_offsets(commits_of_cell, end_ms),
            *_possible_lost_offset(lost.get(cell), commits_of_cell, end_ms),
        }
        if commits_of_cell and row["committed_offset"] not in possible:
            yield f"lag_history: {row} has none of {commits_of_cell}"
        if row["lag"] != max(0, row["log_end_offset"] - row["committed_offset"] - row["messages_lost"]):
            yield f"lag_history: {row} does not add up"


def _possible_offsets(commits: list[Commit], at_ms: int) -> Iterator[int | None]:
    """Yield the last offset that was certainly committed by then, and those that may have been."""
    last = max((at for at, commit in enumerate(commits) if commit.until_ms <= at_ms), default=0)
    for commit in commits[last:]:
        if commit.since_ms <= at_ms:
            yield commit.offset


def _possible_lost_offset(lost: Commit | None, commits: list[Commit], at_ms: int) -> Iterator[int | None]:
    """Yield the offset of the lost commit, until the next commit."""
    if lost is not None and lost.since_ms <= at_ms:
        after = [commit for commit in commits if commit.since_ms >= lost.until_ms]
        if not after or at_ms < after[0].until_ms + _MINUTE_MS:
            yield lost.offset


def wrong_owners(rows: Rows, book: Book, share_groups: set[str]) -> Iterator[str]:
    """Yield a message for each partition with two owners in `assignment_intervals`, and for each missing handover."""
    owned = defaultdict[Cell, Rows](list)
    number = book.cut["offsets_partition"]
    for row in sorted(rows, key=lambda row: row["from_record_offset"]):
        is_in_current_log = row["offsets_partition"] != number or row["log_id"] == 1
        if row["kind"] == "assigned" and row["group_id"] not in share_groups and is_in_current_log:
            owned[cell_of(row)].append(row)
    for cell_rows in owned.values():
        for earlier, later in pairwise(cell_rows):
            if earlier["to_record_offset"] is None or earlier["to_record_offset"] > later["from_record_offset"]:
                yield f"assignment_intervals: {earlier} lasts into {later}"
    for each in book.handovers:
        clients = [row["client_id"] for row in owned[each.cell]]
        if (each.giver, each.taker) not in pairwise(clients):
            yield f"assignment_intervals: {each} is not among {clients}"
