"""Set `in_coordinator_partition` of all rows again, after the home partition of groups has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.stream.decode import in_coordinator_partition
from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.names import STATE_TABLES
from offsetstream.tables.placement import uncertain_homes
from offsetstream.tables.store import EVERY_ROW, Store
from offsetstream.tables.transaction import BatchId, transaction_of

Placed = Callable[[pa.Table], pa.Table]
_COLUMN = "in_coordinator_partition"


def place_groups(tables: Store, placed_by: int | None, batch: BatchId) -> None:
    """Set in each row of the state tables whether it is in the partition of its group's coordinator.

    `placed_by`: see `in_coordinator_partition`. After a change of the partition count, groups in a former partition
    stay in the tables, as in the log: the broker of that partition loads them. Raise LeaseError if another job took
    over.
    """
    homes = uncertain_homes(tables)[0] if placed_by is None else {}
    _place(tables, partial(_placed, placed_by=placed_by, homes=homes), batch)


def find_homes(tables: Store, batch: BatchId) -> None:
    """Find the home of groups in several partitions: the one with the latest records. Used if records decide."""
    homes, are_settled = uncertain_homes(tables)
    if not are_settled:
        _place(tables, partial(_placed, placed_by=None, homes=homes), batch)


def _place(tables: Store, placed: Placed, batch: BatchId) -> None:
    for name in reversed(STATE_TABLES):  # `uncertain_homes` detects an interruption by the last ones
        if _is_moved(tables, name, placed):
            _write(tables, name, placed, batch)


def _is_moved(tables: Store, name: str, placed: Placed) -> bool:
    """Return whether any row of the table must change."""
    parts = tables.open(name).rows(EVERY_ROW, ("offsets_partition", "group_id", _COLUMN))
    return any(not part[_COLUMN].equals(placed(part)[_COLUMN]) for part in parts)


@again_on_conflict
def _write(tables: Store, name: str, placed: Placed, batch: BatchId) -> None:
    table = tables.open(name)
    table.replace(EVERY_ROW, map(placed, table.rows()), transaction_of(table, batch))


def _placed(rows: pa.Table, placed_by: int | None, homes: Mapping[str, int]) -> pa.Table:
    groups, places = (rows[name].combine_chunks() for name in ("group_id", "offsets_partition"))
    is_home = in_coordinator_partition(groups, places, placed_by)
    if homes:
        given = [homes.get(group_id) for group_id in groups.to_pylist()]
        is_home = pc.coalesce(pc.equal(pa.array(given, pa.int32()), places), is_home)
    return rows.set_column(rows.column_names.index(_COLUMN), _COLUMN, pa.chunked_array([is_home], pa.bool_()))
