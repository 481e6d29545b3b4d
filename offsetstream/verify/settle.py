"""Repeat the comparison until records in flight have arrived: tables and cluster are never read at the same moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from offsetstream.verify.answers import Answers, Filtered
from offsetstream.verify.compare import differences, groups_not_compared
from offsetstream.verify.difference import RECORDS, ROWS, Difference
from offsetstream.verify.explain import Explanations
from offsetstream.verify.filtered import kept_answers
from offsetstream.verify.table_lag import TablePosition
from offsetstream.verify.tables import TableRows

_PAUSE_SECONDS = 2.0


@dataclass(frozen=True)
class Found:
    """A difference and its explanation, None if nothing explains it."""

    difference: Difference
    explanation: str | None


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison.

    `groups_not_compared` are groups that the client cannot see or read; `unreadable` has its errors. `filtered` is what
    the filters of the tables exclude. `unchanged_partitions` are partitions with differences in which a running job
    applied nothing during the comparison.
    """

    found: list[Found]
    groups: int
    groups_not_compared: list[str]
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
    not_compared = sorted(groups_not_compared(tables, answers))
    return Comparison(
        found,
        len(answers.groups),
        not_compared,
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
