"""The number of offsets partitions, by which a group's own one is told: a change of it brings all rows up to date.

Each row of `offsets_partitions` has the count by which `in_coordinator_partition` was told in the partition's rows.
It is written after them, so that a change that was interrupted is made again.
"""

from __future__ import annotations

import pyarrow as pa

from offsetstream.stream.decode import in_coordinator_partition
from offsetstream.stream.partitions.partition_book import PartitionBook
from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.names import STATE_TABLES
from offsetstream.tables.store import EVERY_ROW, Store
from offsetstream.tables.transaction import BatchId, transaction_of

_TOLD = "in_coordinator_partition"


def is_recounted(book: PartitionBook) -> bool:
    """Tell whether the tables have rows that were placed by another number of partitions than the topic has now."""
    known = (row for row in book.rows.values() if row.load_state is not None)
    return any(row.partition_count != len(book.rows) for row in known)


def place_groups(tables: Store, partitions: int, batch: BatchId) -> None:
    """Tell in each row of the state tables anew whether it is in its group's own partition, one of so many.

    A group that a change of the count left behind stays, as it stays in the log: the broker of its partition loads it.
    LeaseError if another job has taken over.
    """
    for name in STATE_TABLES:
        if _is_moved(tables, name, partitions):
            _tell(tables, name, partitions, batch)


def _is_moved(tables: Store, name: str, partitions: int) -> bool:
    """Tell whether the table has groups of which the answer is another one now."""
    parts = tables.open(name).rows(EVERY_ROW, ("offsets_partition", "group_id", _TOLD))
    return any(not part[_TOLD].equals(_placed(part, partitions)[_TOLD]) for part in parts)


@again_on_conflict
def _tell(tables: Store, name: str, partitions: int, batch: BatchId) -> None:
    table = tables.open(name)
    rows = (_placed(part, partitions) for part in table.rows())
    table.replace(EVERY_ROW, rows, transaction_of(table, batch))


def _placed(rows: pa.Table, partitions: int) -> pa.Table:
    groups, places = (rows[name].combine_chunks() for name in ("group_id", "offsets_partition"))
    told = in_coordinator_partition(groups, places, partitions)
    return rows.set_column(rows.column_names.index(_TOLD), _TOLD, pa.chunked_array([told], pa.bool_()))
