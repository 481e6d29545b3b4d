"""A cluster's answers about its groups, in the columns of the tables. Values that it does not return are None."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Filtered:
    """What the filters of the tables exclude, and what was therefore removed from the answers.

    `groups` are the filtered groups, `offsets` counts filtered offsets of the other groups, and `bare` are those of the
    other groups that have no offset left.
    """

    groups: set[str] = field(default_factory=set)
    offsets: int = 0
    bare: set[str] = field(default_factory=set)


@dataclass
class Answers:
    """Rows as of `groups`, `group_members`, `member_assignments` and `committed_offsets`.

    `invisible_types` are the group types that the client cannot see. A client that `cuts_group_ids` cannot see an empty
    id, and cannot tell ids apart that are equal up to a NUL. `gone` are groups that were listed and then disappeared;
    `unreadable` are groups that the client failed to read, with its error. Neither has rows. `tells_target` in a
    member's row: whether the assignments include its target assignment.
    """

    groups: list[Row] = field(default_factory=list)
    members: list[Row] = field(default_factory=list)
    assignments: list[Row] = field(default_factory=list)
    offsets: list[Row] = field(default_factory=list)
    invisible_types: tuple[str, ...] = ()
    cuts_group_ids: bool = False
    gone: set[str] = field(default_factory=set)
    unreadable: dict[str, str] = field(default_factory=dict)
    filtered: Filtered = field(default_factory=Filtered)
