"""The page that `offsetstream report` writes, taken apart."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any


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
