"""What derives from the cells of a batch's groups, by the driver: a group at a time is Python's, the rest is Arrow's.

As Python objects a group's cells, and the rows of its members, take some ten times their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from itertools import groupby
from typing import Any

import pyarrow as pa

from offsetstream.coordinator.cells import Cell
from offsetstream.coordinator.reduction import GroupKey
from offsetstream.tables.derived import Rows, cell_of
from offsetstream.tables.names import DERIVED_TABLES
from offsetstream.tables.row_pieces import RowPieces, as_python
from offsetstream.tables.schema import load_schema

Derive = Callable[[GroupKey, list[Cell]], dict[str, Rows] | None]


def derived_tables(cells: pa.Table, groups: Set[GroupKey], derive: Derive) -> dict[str, pa.Table]:
    """Return what `derive` makes of each of the groups, also of one without cells, as rows of the derived tables.

    `cells` are rows of `group_cells` of these groups, in any order.
    """
    pieces = RowPieces(map(load_schema, DERIVED_TABLES))
    for key, own in _by_group(cells, groups):
        pieces.add(derive(key, own) or {})
    return pieces.tables()


def _by_group(cells: pa.Table, groups: Set[GroupKey]) -> Iterator[tuple[GroupKey, list[Cell]]]:
    without = set(groups)
    ordered = cells.sort_by([("offsets_partition", "ascending"), ("group_id", "ascending")])
    for key, rows in groupby(as_python(ordered), _key):
        without.discard(key)
        yield key, [cell_of(row) for row in rows]
    for key in without:
        yield key, []


def _key(row: dict[str, Any]) -> GroupKey:
    return row["offsets_partition"], row["group_id"]
