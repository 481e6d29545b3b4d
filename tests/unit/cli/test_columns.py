"""Each column of a text answer is explained in docs/reference/columns.md."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "columns.md").read_text("utf-8")
HEADING = re.compile(r'Column\(\s*"\w+",\s*"([^"]+)"')


def test_each_column_has_a_row_and_each_row_a_column() -> None:
    sources = [path.read_text("utf-8") for path in (ROOT / "offsetstream" / "cli").glob("*.py")]
    printed = {heading for text in sources for heading in HEADING.findall(text)}
    table = PAGE.partition("|---|---|---|\n")[2].partition("\n\n")[0]
    explained = {heading for row in table.splitlines() for heading in row.split("|")[1].strip().split(", ")}
    assert len(printed) > 90
    assert explained == printed
