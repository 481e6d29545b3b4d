"""Which rows of the state tables are of their group's own partition, told anew where that is another one now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.stream.decode import in_coordinator_partition
from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.names import STATE_TABLES
from offsetstream.tables.placement import doubtful_homes
from offsetstream.tables.store import EVERY_ROW, Store
from offsetstream.tables.transaction import BatchId, transaction_of

Placed = Callable[[pa.Table], pa.Table]
_TOLD = "in_coordinator_partition"


def place_groups(tables: Store, placed_by: int | None, batch: BatchId) -> None:
    """Tell in each row of the state tables anew whether it is in its group's own partition.

    `placed_by` is as of `in_coordinator_partition`. A group that a change of the count left behind stays, as it stays
    in the log: the broker of its partition loads it. LeaseError if another job has taken over.
    """
    homes = doubtful_homes(tables)[0] if placed_by is None else {}
    _place(tables, partial(_placed, placed_by=placed_by, homes=homes), batch)


def settle_homes(tables: Store, batch: BatchId) -> None:
    """Where the records decide: tell of groups that are in several partitions which one has the latest records."""
    homes, are_told = doubtful_homes(tables)
    if not are_told:
        _place(tables, partial(_placed, placed_by=None, homes=homes), batch)


def _place(tables: Store, placed: Placed, batch: BatchId) -> None:
    for name in reversed(STATE_TABLES):  # those last by which `doubtful_homes` sees that it was interrupted
        if _is_moved(tables, name, placed):
            _tell(tables, name, placed, batch)


def _is_moved(tables: Store, name: str, placed: Placed) -> bool:
    """Tell whether the table has groups of which the answer is another one now."""
    parts = tables.open(name).rows(EVERY_ROW, ("offsets_partition", "group_id", _TOLD))
    return any(not part[_TOLD].equals(placed(part)[_TOLD]) for part in parts)


@again_on_conflict
def _tell(tables: Store, name: str, placed: Placed, batch: BatchId) -> None:
    table = tables.open(name)
    table.replace(EVERY_ROW, map(placed, table.rows()), transaction_of(table, batch))


def _placed(rows: pa.Table, placed_by: int | None, homes: Mapping[str, int]) -> pa.Table:
    groups, places = (rows[name].combine_chunks() for name in ("group_id", "offsets_partition"))
    told = in_coordinator_partition(groups, places, placed_by)
    if homes:
        given = [homes.get(group_id) for group_id in groups.to_pylist()]
        told = pc.coalesce(pc.equal(pa.array(given, pa.int32()), places), told)
    return rows.set_column(rows.column_names.index(_TOLD), _TOLD, pa.chunked_array([told], pa.bool_()))
