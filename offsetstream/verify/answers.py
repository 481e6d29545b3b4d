"""What a cluster answers about its groups, in the columns of our tables; what it does not tell is None."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Filtered:
    """What the tables leave out by their filters, and the answers no longer have.

    `groups`, the number of offsets of other groups, and which of these groups have no other offsets (`bare`).
    """

    groups: set[str] = field(default_factory=set)
    offsets: int = 0
    bare: set[str] = field(default_factory=set)


@dataclass
class Answers:
    """Rows as of `groups`, `group_members`, `member_assignments` and `committed_offsets`.

    `unseen_types` are the group types that the client which asked cannot see; one that `cuts_group_ids` cannot see
    an empty id, nor tell ids apart that are alike up to a NUL. `gone` are groups that were listed, and were not there
    any more when they were asked for: of them there are no rows, nor of `unreadable` ones, which have the error of the
    client. A member's row has `tells_target`:
    whether its target assignment is among the assignments.
    """

    groups: list[Row] = field(default_factory=list)
    members: list[Row] = field(default_factory=list)
    assignments: list[Row] = field(default_factory=list)
    offsets: list[Row] = field(default_factory=list)
    unseen_types: tuple[str, ...] = ()
    cuts_group_ids: bool = False
    gone: set[str] = field(default_factory=set)
    unreadable: dict[str, str] = field(default_factory=dict)
    filtered: Filtered = field(default_factory=Filtered)
