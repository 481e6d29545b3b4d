"""The names of topics, and assignments that were written before a topic's name was known."""

from pathlib import Path

import pytest

from offsetstream.cluster.answers import TopicDescription
from offsetstream.stream.monitor import topic_book
from offsetstream.stream.monitor.topic_book import TopicBook
from offsetstream.tables.names import ASSIGNMENTS, TOPICS
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.transaction import BatchId
from testkit.tables import append_rows

ID = "AAAAAAAAAAAAAAAAAAAAAQ"
BATCH = BatchId(1, 0)


@pytest.fixture
def tables(tables: PathStore) -> PathStore:
    append_rows(
        Path(tables.root), ASSIGNMENTS, [{"offsets_partition": 0, "group_id": "g", "topic_id": ID, "topic": ID}]
    )
    return tables


def names(tables: PathStore, table: str) -> list[str]:
    return [row["topic"] for row in read_rows(tables.open(table))]


def test_assignments_get_a_topic_name_that_is_learned_later(tables: PathStore) -> None:
    TopicBook(tables).observe([TopicDescription(ID, "orders", 3, False)], BATCH)
    assert names(tables, ASSIGNMENTS) == names(tables, TOPICS) == ["orders"]


def test_assignments_get_their_topic_name_after_a_crash_between_the_writes(
    tables: PathStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [TopicDescription(ID, "orders", 3, False)]
    for write in ("merge_rows", "overwrite_rows"):
        with monkeypatch.context() as patch:
            patch.setattr(topic_book, write, _die)
            with pytest.raises(KeyboardInterrupt):
                TopicBook(tables).observe(found, BATCH)
    TopicBook(tables).observe(found, BATCH)
    assert names(tables, ASSIGNMENTS) == names(tables, TOPICS) == ["orders"]


def _die(*_: object, **__: object) -> None:
    raise KeyboardInterrupt
