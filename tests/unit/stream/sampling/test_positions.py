"""Committed offsets just below an end: only there it matters which records are in between."""

from __future__ import annotations

from pathlib import Path

from offsetstream.cluster.log_ends import TopicPartitionKey
from offsetstream.stream.sampling.positions import Positions
from offsetstream.stream.sampling.sample_book import Tail
from offsetstream.tables.path_store import PathStore
from testkit.tables import new_tables


def test_the_greatest_offset_within_each_tail(tmp_path: Path) -> None:
    offsets = {
        ("orders", 0): (7, 9, 10),
        ("orders", 1): (3,),
        ("other", 0): (5000,),
        ("behind", 0): (10,),
        ("none", 0): (-1,),
    }
    rows = [
        {"group_id": f"group-{offset}", "topic": topic, "partition": partition, "committed_offset": offset}
        for (topic, partition), each in offsets.items()
        for offset in each
    ]
    new_tables(tmp_path, {"committed_offsets": [row | {"offsets_partition": 0} for row in rows]})
    places = {TopicPartitionKey(*place): Tail(0, 10) for place in offsets}
    places[TopicPartitionKey("orders", 1)] = Tail(3, 10)  # a record is known to be there
    places[TopicPartitionKey("behind", 0)] = Tail(0, 5000)  # messages wait, whatever is at the end
    assert Positions(PathStore(str(tmp_path))).within(places) == {TopicPartitionKey("orders", 0): 9}
    assert Positions(PathStore(str(tmp_path))).within({}) == {}
