"""The decoded history against the state tables: an assignment is the same one however its topic was known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offsetstream.tables.path_store import PathStore
from offsetstream.verify.decoded_history import decoded_differences
from testkit.tables import append_rows, new_tables

Row = dict[str, Any]
LOG = {"offsets_partition": 0, "log_id": 0}
OF_ALL = LOG | {"group_id": "g", "member_id": "m", "kind": "assigned", "partition": 0, "topic_id": "an-id"}


@pytest.fixture
def tables(tmp_path: Path) -> PathStore:
    """Tables of a log that is decoded as far as it is applied."""
    found = new_tables(tmp_path / "tables")
    add(found, "offsets_partitions", LOG | {"next_offset": 9, "next_decoded_offset": 9})
    add(found, "decoded_logs", LOG | {"decoded_from_offset": 0})
    return found


def add(tables: PathStore, name: str, row: Row) -> None:
    append_rows(Path(tables.root), name, [row])


def test_a_topic_whose_name_was_learned_later_is_the_same(tables: PathStore) -> None:
    add(tables, "assignment_history", OF_ALL | {"topic": "an-id", "record_offset": 1, "change": "assigned"})
    add(tables, "member_assignments", OF_ALL | {"topic": "orders", "record_offset": 1})
    assert decoded_differences(tables) == []
    add(tables, "assignment_history", OF_ALL | {"topic": "orders", "record_offset": 2, "change": "revoked"})
    (found,) = decoded_differences(tables)
    assert (found.table, found.column, found.in_tables) == ("assignment_history", "row", False)
    tables.open("member_assignments").replace("true", [])
    assert decoded_differences(tables) == []


def test_named_topics_are_distinguished_by_name(tables: PathStore) -> None:
    for topic in ("orders", "payments"):
        classic = OF_ALL | {"topic_id": None, "topic": topic}
        add(tables, "assignment_history", classic | {"record_offset": 1, "change": "assigned"})
        add(tables, "member_assignments", classic | {"record_offset": 1})
    assert decoded_differences(tables) == []
