"""What the cluster says of topics: the names of topic ids, and the settings of the offsets topic."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from offsetstream.cluster.answers import TopicDescription
from offsetstream.cluster.client import Cluster, deletes_records
from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.errors import ClusterError, DoubledRowsError, UnreachableError
from offsetstream.tables.matching import merge_rows
from offsetstream.tables.names import ASSIGNMENTS, TOPICS
from offsetstream.tables.schema import DELETED, load_schema
from offsetstream.tables.small_tables import overwrite_rows, read_rows
from offsetstream.tables.store import Store
from offsetstream.tables.transaction import BatchId

WRITTEN_EVERY = timedelta(minutes=10)
# Kafka's delete.retention.ms and max.message.bytes.
_DEFAULT_RETENTION, _DEFAULT_BATCH_BYTES = 86_400_000, 1_048_588
_LONGEST = 10**15  # milliseconds; Kafka allows up to 2^63
SAFE_SHARE = 0.9  # of a time that the brokers guarantee: a margin for their clocks


class TopicBook:
    """The rows of the table `topics`, by topic id. The driver keeps them in memory: only one job writes them.

    The newer group types name topics by id only (reference 5.10 item 1). The cluster knows the names, but not those of
    deleted topics.
    """

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


class TopicSettings:
    """What the settings of the offsets topic guarantee for its records. They may change while the job runs.

    They are those of the last query, or Kafka's defaults if the cluster does not return them.

    `uncompacted_since`: since when every query has returned at least the current `uncompacted_for`.
    """

    def __init__(self, cluster: Cluster, warn: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._warn = warn
        self._is_refused = self._is_warned = False
        self._settings: dict[str, str | None] = {}
        self.uncompacted_since = datetime.max.replace(tzinfo=UTC)

    def look(self) -> None:
        """Query the settings again. Raise UnreachableError if no broker answers."""
        before, queried_at = self.uncompacted_for, datetime.now(UTC)
        try:
            self._settings = self._cluster.topic_settings()
            self._warn_of_retention()
            if self.uncompacted_for > before:
                self.uncompacted_since = queried_at
        except UnreachableError:
            raise
        except ClusterError as error:
            if not self._is_refused:
                self._warn(f"Cannot read the settings of {OFFSETS_TOPIC}, assuming delete.retention.ms=24 h: {error}")
            self._is_refused = True

    def _warn_of_retention(self) -> None:
        if self.forgets and not self._is_warned:
            self._warn(
                f"cleanup.policy of {OFFSETS_TOPIC} is {self._settings['cleanup.policy']}: retention "
                f"(retention.ms={self._settings.get('retention.ms')}, "
                f"retention.bytes={self._settings.get('retention.bytes')}) deletes committed offsets of groups that "
                "still exist. A coordinator loses them when it moves or restarts, and so do the tables. "
                "Set cleanup.policy=compact, Kafka's default for this topic"
            )
        self._is_warned = self.forgets

    @property
    def forgets(self) -> bool:
        """Whether retention deletes records of the topic, even the last one of a key."""
        return deletes_records(self._settings)

    @property
    def safe_retention(self) -> timedelta:
        """How long a tombstone is guaranteed to stay, with a margin."""
        return SAFE_SHARE * _milliseconds(self._number("delete.retention.ms", _DEFAULT_RETENTION))

    @property
    def uncompacted_for(self) -> timedelta:
        """How long a record is guaranteed not to be compacted, with a margin; zero if nothing guarantees it."""
        if self._settings.get("cleanup.policy") == "delete":
            return timedelta.max
        return SAFE_SHARE * _milliseconds(self._number("min.compaction.lag.ms", 0))

    @property
    def largest_batch(self) -> int:
        """The largest size of a record batch of the topic, in bytes."""
        return self._number("max.message.bytes", _DEFAULT_BATCH_BYTES)

    def _number(self, name: str, default: int) -> int:
        return int(self._settings.get(name) or default)


def _milliseconds(number: int) -> timedelta:
    return timedelta(milliseconds=min(number, _LONGEST))
