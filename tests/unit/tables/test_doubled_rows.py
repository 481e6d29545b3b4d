"""Doubled rows are found, reported, and gone after a load; the job repairs its own small tables itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from offsetstream.cluster.answers import TopicDescription
from offsetstream.errors import DoubledRowsError
from offsetstream.stream.monitor.topics import TopicBook
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.tables.lease import Lease
from offsetstream.tables.matching import require_no_doubled_rows
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.transaction import BatchId
from testkit.merge_model import HOSTILE
from testkit.tables import append_rows

ID = "AAAAAAAAAAAAAAAAAAAAAQ"
LOAD = BatchId(1, -1)


def double(tables: PathStore, name: str) -> None:
    path = tables.table(name)
    write_deltalake(path, DeltaTable(path).to_pyarrow_table(), mode="append")


def test_doubled_keys_are_found_by_partition(tables: PathStore) -> None:
    texts = [None, *HOSTILE]
    place = {"offsets_partition": 0, "group_id": "g"}
    keys = [place | {"topic_id": first, "topic": second} for first in texts for second in texts]
    require_no_doubled_rows(tables, "member_assignments")
    append_rows(Path(tables.root), "member_assignments", keys)
    require_no_doubled_rows(tables, "member_assignments")
    again = [keys[0] | {"offsets_partition": partition} for partition in (5, 3, 5, 3, 5, 9)]
    append_rows(Path(tables.root), "member_assignments", again)
    with pytest.raises(
        DoubledRowsError, match=r"member_assignments has rows twice in the offsets partitions 3, 5$"
    ) as e:
        require_no_doubled_rows(tables, "member_assignments")
    assert e.value.partitions == {3, 5}


def test_doubled_partition_rows_resume_from_the_greatest_offset(tables: PathStore) -> None:
    furthest = [{"offsets_partition": 0, "log_id": 1, "load_id": 1, "next_offset": offset} for offset in (7, 9, 8)]
    append_rows(Path(tables.root), "offsets_partitions", [*furthest, {**furthest[0], "log_id": 0, "next_offset": 99}])
    book = PartitionBook(tables, [0, 1])
    assert book.next_offsets == {0: 9}
    book.write(LOAD)
    rows = read_rows(tables.open("offsets_partitions"))
    assert sorted((row["offsets_partition"], row["next_offset"]) for row in rows) == [(0, 9), (1, None)]


def test_doubled_topics_and_leases_are_repaired(tables: PathStore) -> None:
    Lease.acquire(tables).release()
    TopicBook(tables).observe([TopicDescription(ID, "orders", 3, False)], LOAD)
    for name in ("job_lease", "topics"):
        double(tables, name)
    TopicBook(tables).observe([TopicDescription(ID, "orders", 3, False)], LOAD)
    lease = Lease.acquire(tables)
    double(tables, "job_lease")
    lease.heartbeat()
    assert lease.read().owner == lease.owner
    assert [len(read_rows(tables.open(name))) for name in ("job_lease", "topics")] == [1, 1]


def test_a_topic_name_is_added_despite_doubled_assignments(tables: PathStore) -> None:
    rows = [{"offsets_partition": number, "group_id": "g", "topic_id": ID, "topic": ID} for number in (0, 1, 1)]
    append_rows(Path(tables.root), "member_assignments", rows)
    TopicBook(tables).observe([TopicDescription(ID, "orders", 3, False)], LOAD)
    found = read_rows(tables.open("member_assignments"))
    assert sorted((row["offsets_partition"], row["topic"]) for row in found) == [(0, "orders"), (1, ID), (1, ID)]
