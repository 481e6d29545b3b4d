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
from offsetstream.tables.arrow_rows import from_rows
from offsetstream.tables.derived import Rows, cell_of
from offsetstream.tables.names import DERIVED_TABLES
from offsetstream.tables.schema import load_schema

_CELLS = 64  # each may be a megabyte of JSON
_ROWS = 10_000

Derive = Callable[[GroupKey, list[Cell]], dict[str, Rows] | None]


def derived_tables(cells: pa.Table, groups: Set[GroupKey], derive: Derive) -> dict[str, pa.Table]:
    """Return what `derive` makes of each of the groups, also of one without cells, as rows of the derived tables.

    `cells` are rows of `group_cells` of these groups, in any order.
    """
    pieces = {name: [load_schema(name).arrow.empty_table()] for name in DERIVED_TABLES}
    held: dict[str, Rows] = {name: [] for name in DERIVED_TABLES}
    for key, own in _by_group(cells, groups):
        for name, rows in (derive(key, own) or {}).items():
            held[name] += rows
        if sum(map(len, held.values())) >= _ROWS:
            _put_away(held, pieces)
    _put_away(held, pieces)
    return {name: pa.concat_tables(of_table) for name, of_table in pieces.items()}


def _by_group(cells: pa.Table, groups: Set[GroupKey]) -> Iterator[tuple[GroupKey, list[Cell]]]:
    without = set(groups)
    for key, rows in groupby(
        _rows(cells.sort_by([("offsets_partition", "ascending"), ("group_id", "ascending")])), _key
    ):
        without.discard(key)
        yield key, [cell_of(row) for row in rows]
    for key in without:
        yield key, []


def _rows(cells: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in cells.to_batches(max_chunksize=_CELLS):
        yield from batch.to_pylist()


def _key(row: dict[str, Any]) -> GroupKey:
    return row["offsets_partition"], row["group_id"]


def _put_away(held: dict[str, Rows], pieces: dict[str, list[pa.Table]]) -> None:
    for name, rows in held.items():
        pieces[name].append(from_rows(rows, load_schema(name)))
        rows.clear()
