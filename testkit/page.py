"""Writes tables for the page of `offsetstream report`, also with hostile names, and parses the page."""

from __future__ import annotations

import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from testkit.group_world import GroupWorld
from testkit.tables import new_tables

# Ids that clients may use: markup, commands, control characters, the empty id, and the longest.
IDS = (
    *("", " ", " lead", "tab\t", "nul\0nul", "a,b", "line\nfeed", "cr\rlf\r\n", 'q"uo"te', "it's", "--group", "%s{}"),
    *("\x1b[31mred\x1b]0;title\x07", "\x9b31m", "a\x85b", "a\u2028b", "\u202eright to left", "\ufeffmark", "null"),
    # The longest string that Kafka allows has 32,767 bytes.
    *("g" * 32_767, "\x7f" * 32_767, "😀" * 8191, "\U0010ffff" * 8191),
)


PERIOD = ("--since", "2026-01-05T10:00", "--until", "2026-01-05T10:40")
MARKUP = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "<img src=//a.example onerror=alert(1)>",
    "a\u202eb\u2028",
)
_NAMES = {"group_id", "topic", "member_id", "client_id", "client_host", "group_instance_id", "metadata", "protocol"}


def write_world(root: Path, renamed: Callable[[Any], Any] = lambda value: value, groups: int = 12) -> None:
    """Write the tables of a made-up cluster for the period; `renamed` changes all names."""
    world = GroupWorld(1, groups=groups).rows
    new_tables(
        root,
        {
            table: [{k: renamed(v) if k in _NAMES else v for k, v in row.items()} for row in rows]
            for table, rows in world.items()
        },
    )


def write_hostile_world(root: Path) -> None:
    """Write the same tables with hostile names only, one group for each; the longest have 1,000 characters."""
    names = [each[:1000] for each in (*MARKUP, *IDS)]
    found: dict[Any, str | None] = {None: None}

    def renamed(value: Any) -> Any:
        number = len(found) - 1
        return found.setdefault(value, names[number % len(names)] + str(number // len(names) or ""))

    write_world(root, renamed, groups=len(names))


class Page(HTMLParser):
    """The text, the elements and the scripts of a page."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.text, self.scripts = "", list[str]()
        self.tags = list[tuple[str, dict[str, str | None]]]()
        self.source = file.read_text("utf-8")
        self.feed(self.source)
        self.data: dict[str, Any] = json.loads(self.scripts[0])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script":
            self.scripts[-1] += data
        elif not self.tags or self.tags[-1][0] != "style":
            self.text += data

    def handle_endtag(self, tag: str) -> None:
        if tag in {"script", "style"}:
            self.tags.append(("end", {}))
