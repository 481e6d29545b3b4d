"""What the settings of the offsets topic guarantee for its records. They may change while the job runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from offsetstream.cluster.client import Cluster, deletes_records
from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.errors import ClusterError, UnreachableError

# Kafka's delete.retention.ms and max.message.bytes.
_DEFAULT_RETENTION, _DEFAULT_BATCH_BYTES = 86_400_000, 1_048_588
_LONGEST = 10**15  # milliseconds; Kafka allows up to 2^63
SAFE_SHARE = 0.9  # of a time that the brokers guarantee: a margin for their clocks


class TopicSettings:
    """The settings of the last query, or Kafka's defaults if the cluster does not return them.

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
