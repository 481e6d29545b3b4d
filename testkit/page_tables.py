"""Tables for the page of `offsetstream report`: a made-up cluster's, and the same under hostile names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from testkit.group_world import GroupWorld
from testkit.hostile_ids import IDS
from testkit.tables import new_tables

PERIOD = ("--since", "2026-01-05T10:00", "--until", "2026-01-05T10:40")
MARKUP = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "<img src=//a.example onerror=alert(1)>",
    "a\u202eb\u2028",
)
_NAMES = {"group_id", "topic", "member_id", "client_id", "client_host", "group_instance_id", "metadata", "protocol"}


def write_world(root: Path, renamed: Callable[[Any], Any] = lambda value: value, groups: int = 12) -> None:
    """Write the tables of a made-up cluster, of the period, whose names are as `renamed` has them."""
    world = GroupWorld(1, groups=groups).rows
    new_tables(
        root,
        {
            table: [{k: renamed(v) if k in _NAMES else v for k, v in row.items()} for row in rows]
            for table, rows in world.items()
        },
    )


def write_hostile_world(root: Path) -> None:
    """Write the same where each name is one of those, a group for each of them; the longest are 1,000 characters."""
    names = [each[:1000] for each in (*MARKUP, *IDS)]
    found: dict[Any, str | None] = {None: None}

    def renamed(value: Any) -> Any:
        number = len(found) - 1
        return found.setdefault(value, names[number % len(names)] + str(number // len(names) or ""))

    write_world(root, renamed, groups=len(names))
