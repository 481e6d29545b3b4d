"""The number of offsets partitions, by which a group's own one is told: a change of it brings all rows up to date.

Each row of ``offsets_partitions`` has the count by which ``in_coordinator_partition`` was told in the partition's rows.
It is written after them, so that a change that was interrupted is made again.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder

from offsetstream.stream.decode import in_coordinator_partition
from offsetstream.stream.derive import STATE_TABLES
from offsetstream.stream.partition_book import PartitionBook
from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.location import TablesLocation
from offsetstream.tables.small import transaction
from offsetstream.tables.transaction import BatchId

_TOLD = "in_coordinator_partition"
_AT_ONCE = 200_000  # groups: bounds the memory of a merge


def is_recounted(book: PartitionBook) -> bool:
    """Tell whether the tables have rows that were placed by another number of partitions than the topic has now."""
    known = (row for row in book.rows.values() if row["load_state"] is not None)
    return any(row["partition_count"] != len(book.rows) for row in known)


def place_groups(tables: TablesLocation, partitions: int, batch: BatchId) -> None:
    """Tell in each row of the state tables anew whether it is in its group's own partition, one of so many.

    A group that a change of the count left behind stays, as it stays in the log: the broker of its partition loads it.
    LeaseError if another job has taken over.
    """
    for name in STATE_TABLES:
        moved = _moved(tables, name, partitions)
        for start in range(0, moved.num_rows, _AT_ONCE):
            _tell(tables, name, moved.slice(start, _AT_ONCE), batch)


def note_count(book: PartitionBook) -> None:
    """Note that all rows that the tables have, and will get, are placed by the number of partitions of now."""
    for row in book.rows.values():
        row["partition_count"] = len(book.rows)


def _moved(tables: TablesLocation, name: str, partitions: int) -> pa.Table:
    """Return the groups of the table, by partition, of which the answer is another one now."""
    reader = QueryBuilder().register("rows", DeltaTable(tables.table(name)))
    found = pa.table(reader.execute(f"SELECT DISTINCT offsets_partition, group_id, {_TOLD} AS told FROM rows"))  # noqa: S608 - the program's own SQL
    places, groups = found["offsets_partition"], found["group_id"].cast(pa.string())
    told = in_coordinator_partition(groups.combine_chunks(), places.combine_chunks(), partitions)
    moved = pa.table({"offsets_partition": places, "group_id": groups, "told": told})
    return moved.filter(pc.fill_null(pc.not_equal(found["told"], told), True))


@again_on_conflict
def _tell(tables: TablesLocation, name: str, moved: pa.Table, batch: BatchId) -> None:
    table = DeltaTable(tables.table(name))
    same = "target.offsets_partition = source.offsets_partition AND target.group_id = source.group_id"
    signed = transaction(table, name, batch)
    merge = table.merge(moved, same, source_alias="source", target_alias="target", commit_properties=signed)
    merge.when_matched_update({_TOLD: "source.told"}).execute()
