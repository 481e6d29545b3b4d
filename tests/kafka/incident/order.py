"""What views tell of how it went on, against the book: offsets minute by minute, partitions from member to member."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.kafka.incident.book import Book, Cell, Commit
from tests.kafka.incident.comparison import Rows, cell_of

_MINUTE_MS = 60_000


def wrong_minutes(rows: Rows, book: Book) -> Iterator[str]:
    """Rows of `lag_history` with an offset that did not stand when the minute ended."""
    commits = defaultdict[Cell, list[Commit]](list)
    for commit in book.commits:
        commits[commit.cell].append(commit)
    lost = {commit.cell: commit for commit in book.lost}
    for row in rows:
        cell, end_ms = cell_of(row), row["minute"] // 1000 + _MINUTE_MS
        own = commits[cell]
        may_stand = {*_may_stand(own, end_ms), *_may_have_stood(lost.get(cell), own, end_ms)}
        if own and row["committed_offset"] not in may_stand:
            yield f"lag_history: {row} has none of {own}"
        if row["lag"] != max(0, row["log_end_offset"] - row["committed_offset"] - row["messages_lost"]):
            yield f"lag_history: {row} does not add up"


def _may_stand(commits: list[Commit], at_ms: int) -> Iterator[int | None]:
    """The last one that surely was before, and those that may have been."""
    last = max((at for at, commit in enumerate(commits) if commit.until_ms <= at_ms), default=0)
    for commit in commits[last:]:
        if commit.since_ms <= at_ms:
            yield commit.offset


def _may_have_stood(lost: Commit | None, commits: list[Commit], at_ms: int) -> Iterator[int | None]:
    """The commit that was lost, until the next one."""
    if lost is not None and lost.since_ms <= at_ms:
        after = [commit for commit in commits if commit.since_ms >= lost.until_ms]
        if not after or at_ms < after[0].until_ms + _MINUTE_MS:
            yield lost.offset


def wrong_owners(rows: Rows, book: Book, share_groups: set[str]) -> Iterator[str]:
    """Rows of `assignment_intervals` in which two have a partition, and handovers that they do not tell."""
    owned = defaultdict[Cell, Rows](list)
    number = book.cut["offsets_partition"]
    for row in sorted(rows, key=lambda row: row["from_record_offset"]):
        is_of_a_log_that_is = row["offsets_partition"] != number or row["log_id"] == 1
        if row["kind"] == "assigned" and row["group_id"] not in share_groups and is_of_a_log_that_is:
            owned[cell_of(row)].append(row)
    for own in owned.values():
        for one, next_ in pairwise(own):
            if one["to_record_offset"] is None or one["to_record_offset"] > next_["from_record_offset"]:
                yield f"assignment_intervals: {one} lasts into {next_}"
    for each in book.handovers:
        clients = [row["client_id"] for row in owned[each.cell]]
        if (each.giver, each.taker) not in pairwise(clients):
            yield f"assignment_intervals: {each} is not among {clients}"
