"""Where the new coordinators of different releases replay the same records differently (reference 5.11)."""

from __future__ import annotations

import re
from enum import Enum
from typing import TypeAlias

from offsetstream.errors import UsageError

FIRST_RELEASE, LAST_RELEASE = "4.0", "4.4"
UNMERGED = "unmerged"
"""The newest release, plus the rules that are proposed but not in a release yet."""
MAX_ARRAY_ELEMENTS = 1_000_000

_Release: TypeAlias = tuple[int, int, int]
_MINORS = range(5)
_PATTERN = re.compile(r"4\.(\d)(?:\.(\d{1,3}))?", re.ASCII)
_NEWEST_PATCH = 1 << 30


class Rule(Enum):
    """A rule: the issue that proposed it, and the releases that introduced it.

    The last of these releases and all later ones have the rule. The others are patch releases of older branches. A rule
    without releases is only proposed.
    """

    STREAMS_RECORDS_ARE_KNOWN = "KAFKA-18730", ((4, 1, 0),)
    PARTITIONS_ARE_TAKEN_OVER = "KAFKA-19862", ((4, 0, 2), (4, 1, 2), (4, 2, 0))
    STREAMS_GROUP_REPLACES_SIMPLE = "KAFKA-20254", ((4, 2, 1),)
    LARGE_ARRAYS_ARE_REFUSED = "unknown", ((4, 4, 0),)
    CONSUMER_GROUP_REPLACES_CLASSIC = "KAFKA-21117", ()

    def __init__(self, issue: str, since: tuple[_Release, ...]) -> None:
        self.issue = issue
        self.since = since

    def is_in(self, release: _Release) -> bool:
        """Whether the release has the rule."""
        same_branch = [first for first in self.since if first[:2] == release[:2]]
        return any(release >= first for first in [*same_branch, *self.since[-1:]])


Rules: TypeAlias = frozenset[Rule]


def rules_for(release: str = LAST_RELEASE) -> Rules:
    """Return the rules of a release: `4.1.1`, `4.1` (its newest patch), or `unmerged`.

    Raises UsageError for anything else.
    """
    if release == UNMERGED:
        return rules_for() | {rule for rule in Rule if not rule.since}
    match = _PATTERN.fullmatch(release)
    if match is None or int(match[1]) not in _MINORS:
        raise UsageError(
            f"{release!r} is not a release from {FIRST_RELEASE} to {LAST_RELEASE}: write 4.1.1, 4.3 or {UNMERGED}"
        )
    patch = _NEWEST_PATCH if match[2] is None else int(match[2])
    return frozenset(rule for rule in Rule if rule.is_in((4, int(match[1]), patch)))
