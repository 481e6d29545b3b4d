"""Derive the rows of groups and members from their cells, on the driver.

Only one group at a time is converted to Python objects, which need some ten times the memory of Arrow's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from offsetstream.coordinator.cells import Cell
from offsetstream.coordinator.reduction import GroupKey
from offsetstream.tables.derived import GROUP_CONSTANTS, cell_of, rows_of_group
from offsetstream.tables.names import DERIVED_TABLES, GROUPS
from offsetstream.tables.plain_rows import Rows, from_rows
from offsetstream.tables.row_pieces import RowPieces, to_python
from offsetstream.tables.schema import load_schema

Row = dict[str, Any]
Derive = Callable[[GroupKey, list[Cell]], dict[str, Rows] | None]


def derived_tables(cells: pa.Table, derive: Derive) -> dict[str, pa.Table]:
    """Return the rows of the derived tables: the results of `derive` for each group in `cells`.

    `cells`: rows of `group_cells`, in any order.
    """
    pieces = RowPieces(map(load_schema, DERIVED_TABLES))
    ordered = cells.sort_by([("offsets_partition", "ascending"), ("group_id", "ascending")])
    for key, rows in groupby(to_python(ordered), _key):
        pieces.add(derive(key, [cell_of(row) for row in rows]) or {})
    return pieces.tables()


def offsets_only_groups(places: Sequence[Row]) -> pa.Table:
    """Return the rows of `groups` for groups that exist without a cell, as `derive_group` makes them.

    `places` have the columns of `GROUP_CONSTANTS` and group_id; nothing else differs. So the rows are built by column,
    which is fast for a million groups.
    """
    schema = load_schema(GROUPS)
    template = rows_of_group([], "", {}, exists=True, place=dict.fromkeys(GROUP_CONSTANTS)) or {}
    rows = from_rows(template[GROUPS], schema).take(pa.repeat(pa.scalar(0), len(places)))
    for name in (*GROUP_CONSTANTS, "group_id"):
        field = schema.arrow.field(name)
        values = pa.array([place[name] for place in places], field.type)
        rows = rows.set_column(schema.arrow.get_field_index(name), field, values)
    return rows


def _key(row: Row) -> GroupKey:
    return row["offsets_partition"], row["group_id"]
