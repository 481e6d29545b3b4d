"""Which columns join which tables: data (`joins.json`) for docs/reference/tables.md, checked on real tables."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class Join:
    """Rows of tables (`rows`) and what another one (`of`) has of them, by columns of the same names.

    `always`: each of the rows has its other one.
    """

    rows: tuple[str, ...]
    of: str
    by: tuple[str, ...]
    always: bool
    what: str


def all_joins() -> list[Join]:
    """Return every join that is documented."""
    told = json.loads((resources.files("offsetstream.tables") / "joins.json").read_text("utf-8"))
    return [Join(**each | {"rows": tuple(each["rows"]), "by": tuple(each["by"])}) for each in told]
