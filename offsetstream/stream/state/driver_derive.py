"""What derives from the cells of a batch's groups, by the driver: a group at a time is Python's, the rest is Arrow's.

As Python objects a group's cells, and the rows of its members, take some ten times their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from offsetstream.coordinator.cells import Cell
from offsetstream.coordinator.reduction import GroupKey
from offsetstream.tables.derived import PLACE, cell_of, rows_of_group
from offsetstream.tables.names import DERIVED_TABLES, GROUPS
from offsetstream.tables.plain_rows import Rows, from_rows
from offsetstream.tables.row_pieces import RowPieces, as_python
from offsetstream.tables.schema import load_schema

Row = dict[str, Any]
Derive = Callable[[GroupKey, list[Cell]], dict[str, Rows] | None]


def derived_tables(cells: pa.Table, derive: Derive) -> dict[str, pa.Table]:
    """Return what `derive` makes of each group that has cells, as rows of the derived tables.

    `cells` are rows of `group_cells` of these groups, in any order.
    """
    pieces = RowPieces(map(load_schema, DERIVED_TABLES))
    ordered = cells.sort_by([("offsets_partition", "ascending"), ("group_id", "ascending")])
    for key, rows in groupby(as_python(ordered), _key):
        pieces.add(derive(key, [cell_of(row) for row in rows]) or {})
    return pieces.tables()


def offsets_only_groups(places: Sequence[Row]) -> pa.Table:
    """Return rows of `groups` for groups that exist without a cell, as `derive_group` makes them.

    They differ in nothing but the `places`, which have the columns of `PLACE` and group_id: of a million, by column.
    """
    schema = load_schema(GROUPS)
    alike = rows_of_group([], "", {}, exists=True, place=dict.fromkeys(PLACE)) or {}
    rows = from_rows(alike[GROUPS], schema).take(pa.repeat(pa.scalar(0), len(places)))
    for name in (*PLACE, "group_id"):
        field = schema.arrow.field(name)
        values = pa.array([place[name] for place in places], field.type)
        rows = rows.set_column(schema.arrow.get_field_index(name), field, values)
    return rows


def _key(row: Row) -> GroupKey:
    return row["offsets_partition"], row["group_id"]
