"""A cache of topic metadata (leaders and replicas) of a live cluster, refreshed as the cluster changes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from offsetstream.cluster.client import kafka_uuid
from offsetstream.cluster.log_ends import Answers, LogEnd, LogEnds, TopicPartitionKey

# Kafka's InvalidMetadataException and similar errors: they mean that the client's metadata is outdated.
STALE = frozenset(
    {
        "FENCED_LEADER_EPOCH",
        "INCONSISTENT_TOPIC_ID",
        "KAFKA_STORAGE_ERROR",
        "LEADER_NOT_AVAILABLE",
        "LISTENER_NOT_FOUND",
        "NETWORK_EXCEPTION",
        "NOT_LEADER_OR_FOLLOWER",
        "OFFSET_NOT_AVAILABLE",
        "REPLICA_NOT_AVAILABLE",
        "REQUEST_TIMED_OUT",
        "UNKNOWN_LEADER_EPOCH",
        "UNKNOWN_TOPIC_ID",
        "UNKNOWN_TOPIC_OR_PARTITION",
    }
)


@dataclass(frozen=True)
class PartitionMetadata:
    """Broker ids of a partition. `leader` is None if there is none. `leader_epoch` is the newest one seen."""

    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]


@dataclass(frozen=True)
class TopicMetadata:
    """A topic and its partitions. `topic_id` is Kafka's text of 22 characters, None before Kafka 2.8."""

    topic_id: str | None
    is_internal: bool
    partitions: Mapping[int, PartitionMetadata] = field(default_factory=dict)


class MetadataCache(LogEnds):
    """A live cluster with a cache of its topics. Every request raises what `Connection` raises.

    A topic that is missing or may be stale is requested first; others come from the cache. A deleted or hidden topic
    leaves the cache. A recreated topic has a new id and starts from nothing. A broker with outdated metadata never
    moves a partition back to an older leader epoch.
    """

    def __init__(self, bootstrap_server: str, properties: Mapping[str, str] | None = None) -> None:
        super().__init__(bootstrap_server, properties)
        self._known: dict[str, TopicMetadata] = {}
        self._stale: set[str] = set()
        self._ends: Answers = {}

    @property
    def known(self) -> Mapping[str, TopicMetadata]:
        """The cached topics by name, without a request."""
        return dict(self._known)

    def refresh(self, topics: Collection[str] | None = None) -> dict[str, str]:
        """Request these topics (None: all visible ones). Return Kafka's names of the errors, by topic."""
        names = set(self._ask("the topics", lambda: self._metadata(None).topics) if topics is None else topics)
        described, refused = self._described(names)
        self._ends |= (ends := self._ends_of(dict.fromkeys(names), described, refused, {}))
        for gone in (set(self._known) if topics is None else names) - set(described):
            self._forget(gone)
        self._stale -= names
        for name, seen in described.items():
            self._store(name, _topic(name, seen, ends))
        return refused

    def topic(self, name: str) -> TopicMetadata | None:
        """Return a topic, None if it does not exist or the user may not see it."""
        if name not in self._known or name in self._stale:
            self.refresh([name])
        return self._known.get(name)

    def partition(self, topic: str, number: int) -> PartitionMetadata | None:
        """Return a partition, None if it does not exist or the user may not see it."""
        found = self.topic(topic)
        if found is not None and number not in found.partitions:  # it may be new
            self.refresh([topic])
            found = self._known.get(topic)
        return None if found is None else found.partitions.get(number)

    def told(self, topic: str, error: str) -> bool:
        """Record an error of a partition, by Kafka's name. Return whether it means that the topic is stale.

        A stale topic is requested again when it is needed.
        """
        if error in STALE:
            self._stale.add(topic)
        return error in STALE

    def last_ends(self, topic: str) -> Answers:
        """Return the start and end offsets of a topic's partitions at the last refresh, or the errors."""
        return {place: end for place, end in self._ends.items() if place.topic == topic}

    def _forget(self, topic: str) -> None:
        self._known.pop(topic, None)
        self._ends = {place: end for place, end in self._ends.items() if place.topic != topic}

    def _store(self, name: str, seen: TopicMetadata) -> None:
        known = self._known.get(name)
        if known is not None and known.topic_id == seen.topic_id:
            newest = {number: newer(known.partitions.get(number), each) for number, each in seen.partitions.items()}
            if newest != seen.partitions:
                self._stale.add(name)
            seen = replace(seen, partitions=newest)
        self._known[name] = seen


def newer(known: PartitionMetadata | None, seen: PartitionMetadata) -> PartitionMetadata:
    """Return the newer metadata of a partition of the same topic: `seen`, unless it has an older leader epoch."""
    if known is None or known.leader_epoch is None:
        return seen
    if seen.leader_epoch is None:  # it has no leader, or the leader does not answer
        return replace(seen, leader_epoch=known.leader_epoch)
    return seen if seen.leader_epoch >= known.leader_epoch else known


def _topic(name: str, seen: Any, ends: Answers) -> TopicMetadata:
    topic_id = kafka_uuid(seen.topic_id)
    return TopicMetadata(
        None if not topic_id.strip("A") else topic_id,
        seen.is_internal,
        {each.id: _partition(each, ends.get(TopicPartitionKey(name, each.id))) for each in seen.partitions},
    )


def _partition(seen: Any, end: Any) -> PartitionMetadata:
    leader = seen.leader.id if seen.leader is not None and seen.leader.id >= 0 else None
    return PartitionMetadata(
        leader,
        end.leader_epoch if isinstance(end, LogEnd) else None,
        tuple(_ids(seen.replicas)),
        tuple(sorted(_ids(seen.isr))),
    )


def _ids(nodes: Collection[Any]) -> Iterator[int]:
    return (node.id for node in nodes)
