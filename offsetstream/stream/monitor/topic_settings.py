"""What the offsets topic's own settings promise of its records; they may be changed while the job runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from offsetstream.cluster.client import Cluster, takes_records
from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.errors import ClusterError, UnreachableError

# Kafka's delete.retention.ms and max.message.bytes.
_DEFAULT_RETENTION, _DEFAULT_BATCH_BYTES = 86_400_000, 1_048_588
_LONGEST = 10**15  # Kafka has times of up to 2^63 milliseconds
SAFE_SHARE = 0.9  # of a time that the brokers promise, after which it may have passed for them


class TopicSettings:
    """The settings as they were told last; Kafka's defaults where the cluster does not tell them.

    `uncompacted_since`: since when each look has told of at least the present `uncompacted_for`.
    """

    def __init__(self, cluster: Cluster, warn: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._warn = warn
        self._is_refused = self._is_warned = False
        self._told: dict[str, str | None] = {}
        self.uncompacted_since = datetime.max.replace(tzinfo=UTC)

    def look(self) -> None:
        """Ask anew; UnreachableError where nobody answers, which tells nothing of the topic."""
        before, asked_at = self.uncompacted_for, datetime.now(UTC)
        try:
            self._told = self._cluster.topic_settings()
            self._warn_of_retention()
            if self.uncompacted_for > before:
                self.uncompacted_since = asked_at
        except UnreachableError:
            raise
        except ClusterError as error:
            if not self._is_refused:
                self._warn(f"taking 24 hours for delete.retention.ms: {error}")
            self._is_refused = True

    def _warn_of_retention(self) -> None:
        if self.forgets and not self._is_warned:
            self._warn(
                f"cleanup.policy of {OFFSETS_TOPIC} is {self._told['cleanup.policy']}: retention "
                f"(retention.ms={self._told.get('retention.ms')}, retention.bytes={self._told.get('retention.bytes')}) "
                "takes committed offsets and groups that live. Coordinators lose these when they move or start again, "
                "and so do the tables. Kafka's brokers set cleanup.policy=compact"
            )
        self._is_warned = self.forgets

    @property
    def forgets(self) -> bool:
        """Whether retention takes records of the topic, also the last one of a key."""
        return takes_records(self._told)

    @property
    def safe_retention(self) -> timedelta:
        """For how long a tombstone is sure to stay, with a margin."""
        return SAFE_SHARE * _milliseconds(self._number("delete.retention.ms", _DEFAULT_RETENTION))

    @property
    def uncompacted_for(self) -> timedelta:
        """For how long a record is sure not to be compacted, with a margin; zero where nothing is sure of that."""
        if self._told.get("cleanup.policy") == "delete":
            return timedelta.max
        return SAFE_SHARE * _milliseconds(self._number("min.compaction.lag.ms", 0))

    @property
    def largest_batch(self) -> int:
        """How many bytes a batch of the topic may have."""
        return self._number("max.message.bytes", _DEFAULT_BATCH_BYTES)

    def _number(self, name: str, default: int) -> int:
        return int(self._told.get(name) or default)


def _milliseconds(number: int) -> timedelta:
    return timedelta(milliseconds=min(number, _LONGEST))
