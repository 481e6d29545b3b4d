"""Compares again until what is in flight has arrived: tables and cluster are never read at one moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from offsetstream.verify.answers import Answers
from offsetstream.verify.compare import differences, groups_not_compared
from offsetstream.verify.difference import Difference
from offsetstream.verify.explain import Explanations
from offsetstream.verify.tables import TableRows

_PAUSE_SECONDS = 2.0


@dataclass(frozen=True)
class Found:
    """A difference and why it is to be expected, None if nothing explains it."""

    difference: Difference
    explanation: str | None


@dataclass(frozen=True)
class Comparison:
    """What a comparison came to; ``groups_not_compared`` are those that the client cannot see."""

    found: list[Found]
    groups: int
    groups_not_compared: list[str]


def compare_until_settled(
    read_tables: Callable[[], TableRows],
    ask_cluster: Callable[[], Answers],
    seconds: float,
    check_records: Callable[[], list[Difference]] = list,
) -> Comparison:
    """Compare until nothing is left unexplained, or for ``seconds``; a difference that goes on changing is explained.

    A group that commits all the time is always some commits ahead of the tables: its values at the end are not those
    of the beginning. What stays the same on both sides for all that time is a difference. ``check_records`` gives the
    differences between the tables and the records that they are from.
    """
    deadline, first = time.monotonic() + seconds, set[Difference]()
    rounds = 0
    while True:
        tables, answers = read_tables(), ask_cluster()
        explanations = Explanations(tables, answers)
        present = [*differences(tables, answers), *check_records()]
        found = [Found(each, explanations.of(each)) for each in present]
        unexplained = {each.difference for each in found if each.explanation is None}
        first = first if rounds else unexplained
        rounds += 1
        if not unexplained or time.monotonic() > deadline:
            break
        time.sleep(_PAUSE_SECONDS)
    if rounds > 1:
        moving = "it changed while it was compared"
        found = [
            Found(each.difference, each.explanation or (None if each.difference in first else moving)) for each in found
        ]
    return Comparison(found, len(answers.groups), sorted(groups_not_compared(tables, answers)))
