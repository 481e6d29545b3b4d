"""End offsets that the job sampled, for look-ups that ask no cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from offsetstream.cli.times import duration_text, time_text
from offsetstream.errors import NoTableError
from offsetstream.tables.lookup import Lookup

TopicPartition = tuple[str, int]


class SampledEndOffsets:
    """The last sampled end offset of each partition, or Kafka's name of the error, and when they were sampled."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._known: dict[str, dict[TopicPartition, Mapping[str, Any]]] = {}
        self._sampled_ms: set[int] = set()
        self._has_all = False

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | str]:
        """Return end offset or error of each known partition. Raise TablesError if the tables cannot be read."""
        unknown = {topic for topic, _ in partitions} - self._known.keys()
        if unknown and not self._has_all:
            # A second call means one call per group: read all at once.
            self._has_all = bool(self._known)
            self._read(None if self._has_all else unknown)
            self._known |= {topic: {} for topic in unknown - self._known.keys()}
        known = {place: row for place in partitions if (row := self._known.get(place[0], {}).get(place))}
        self._sampled_ms |= {row["sampled_at_ms"] for row in known.values() if row["error"] is None}
        return {place: row["error"] or row["high_watermark"] for place, row in known.items()}

    @property
    def has_any(self) -> bool:
        """Tell whether any end offset was sampled."""
        try:
            return bool(self._lookup.rows("topic_partitions", ["topic"], distinct=True))
        except NoTableError:
            return False

    def closing(self) -> str | None:
        """Return a sentence that says when they were sampled; None if none was."""
        if not self._sampled_ms:
            return None
        oldest, newest = min(self._sampled_ms), max(self._sampled_ms)
        age = duration_text(datetime.now(UTC).timestamp() * 1000 - oldest)
        until = "" if newest - oldest < 1000 else f" to {time_text(newest)}"  # noqa: PLR2004 - a second
        return f"LOG-END-OFFSET and LAG were sampled at {time_text(oldest)}{until}, {age} ago."

    def _read(self, topics: Collection[str] | None) -> None:
        columns = ["topic", "topic_id", "partition", "high_watermark", "sampled_at_ms", "error"]
        try:
            rows = self._lookup.rows("topic_partitions", columns, {"topic": topics})
            gone = {
                row["topic_id"]
                for row in self._lookup.rows("topics", ["topic_id", "deleted_at_ms"], {"topic": topics})
                if row["deleted_at_ms"] is not None
            }
        except NoTableError:  # tables of an older version, without samples
            return
        for row in sorted(rows, key=lambda row: (row["error"] is None, row["sampled_at_ms"] or 0)):
            has_sample = row["error"] is not None or row["high_watermark"] is not None
            if has_sample and row["topic_id"] not in gone - {None}:
                self._known.setdefault(row["topic"], {})[row["topic"], row["partition"]] = row
