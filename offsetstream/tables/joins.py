"""The joins between tables, as data (`joins.json`): docs/reference/tables.md prints them, tests run them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class Join:
    """A join of each table in `rows` to the table `of`, by columns (`by`) that have the same names in both.

    `always`: each row has exactly one match. `what` is what the joined row adds.
    """

    rows: tuple[str, ...]
    of: str
    by: tuple[str, ...]
    always: bool
    what: str


def all_joins() -> list[Join]:
    """Return every documented join."""
    joins = json.loads((resources.files("offsetstream.tables") / "joins.json").read_text("utf-8"))
    return [Join(**join | {"rows": tuple(join["rows"]), "by": tuple(join["by"])}) for join in joins]
