"""The names of topic ids, also of deleted topics (reference 5.10 item 1).

The newer group types name topics by id only. The cluster knows the names, but not those of deleted topics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from offsetstream.cluster.answers import TopicDescription
from offsetstream.cluster.client import Cluster
from offsetstream.errors import DoubledRowsError
from offsetstream.tables.arrow_rows import merge_rows
from offsetstream.tables.merge import DELETED
from offsetstream.tables.names import ASSIGNMENTS, TOPICS
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import overwrite_rows, read_rows
from offsetstream.tables.store import Store
from offsetstream.tables.transaction import BatchId

WRITTEN_EVERY = timedelta(minutes=10)


class TopicBook:
    """The rows of the table `topics`, by topic id. The driver keeps them in memory: only one job writes them."""

    def __init__(self, tables: Store) -> None:
        self._tables = tables
        found = sorted(read_rows(tables.open(TOPICS)), key=lambda row: row["last_seen_at"])
        self.rows: dict[str, dict[str, Any]] = {
            row["topic_id"]: row for row in found
        }  # of duplicates the last one counts
        self.names = {topic_id: row["topic"] for topic_id, row in self.rows.items()}
        self._written_at = datetime.min.replace(tzinfo=UTC)

    def id_of(self, topic: str) -> str | None:
        """Return the id that the topic had when it was last seen."""
        seen = [row for row in self.rows.values() if row["topic"] == topic]
        return max(seen, key=lambda row: row["last_seen_at"])["topic_id"] if seen else None

    def look(self, cluster: Cluster, batch: BatchId) -> None:
        """Query the topics of the cluster, and write what is new."""
        found = cluster.topics()
        present = {row["topic"] for row in self.rows.values() if row["deleted_at"] is None}
        self.observe(found, batch, cluster.hidden_topics(present - {topic.name for topic in found}))

    def observe(self, found: Iterable[TopicDescription], batch: BatchId, hidden: Collection[str] = ()) -> None:
        """Update the rows from the existing topics, and write what is new. Hidden topics do not count as deleted."""
        now = datetime.now(UTC)
        seen = {topic.topic_id: topic for topic in found}
        learned = {topic_id: topic.name for topic_id, topic in seen.items() if topic_id not in self.rows}
        changed = bool(learned)
        for topic_id, topic in seen.items():
            row = self.rows.setdefault(topic_id, _new_row(topic, now))
            changed |= row["partitions"] != topic.partitions or row["deleted_at"] is not None
            row |= {"partitions": topic.partitions, "last_seen_at": now, "deleted_at": None}
        for topic_id in self.rows.keys() - seen.keys():
            row = self.rows[topic_id]
            if row["deleted_at"] is None and row["topic"] not in hidden:
                changed, row["deleted_at"] = True, now
        self.names |= learned
        # This comes first: after a crash between the two writes, the next job learns the topic again.
        self._name_assignments(learned, BatchId(batch.checkpoint_id, -1))
        if changed or now - self._written_at > WRITTEN_EVERY:
            overwrite_rows(self._tables, TOPICS, self.rows.values(), batch)
            self._written_at = now

    def _name_assignments(self, learned: Mapping[str, str], batch: BatchId) -> None:
        """Name the topics of assignments that were written when only the topic id was known."""
        if not learned:
            return
        unnamed = read_rows(self._tables.open(ASSIGNMENTS), where="topic = topic_id")
        unnamed = [row for row in unnamed if row["topic_id"] in learned]
        named = [row | {"topic": learned[row["topic_id"]], DELETED: False} for row in unnamed]
        rows = [row | {DELETED: True} for row in unnamed] + named  # the name is part of the key
        schema = load_schema(ASSIGNMENTS).arrow.append(pa.field(DELETED, pa.bool_()))
        try:
            merge_rows(self._tables, ASSIGNMENTS, pa.Table.from_pylist(rows, schema=schema), batch)
        except DoubledRowsError as error:  # the load of those partitions names them
            rows = [row for row in rows if row["offsets_partition"] not in error.partitions]
            merge_rows(self._tables, ASSIGNMENTS, pa.Table.from_pylist(rows, schema=schema), batch)


def _new_row(topic: TopicDescription, now: datetime) -> dict[str, Any]:
    columns = dict.fromkeys(load_schema(TOPICS).column_names)
    return columns | {
        "topic_id": topic.topic_id,
        "topic": topic.name,
        "partitions": topic.partitions,
        "is_internal": topic.is_internal,
        "first_seen_at": now,
    }
