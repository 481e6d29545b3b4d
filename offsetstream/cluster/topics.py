"""What a live cluster tells of its topics: which there are, their partitions and leaders, which may not be seen."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from offsetstream.cluster.answers import TopicSeen
from offsetstream.cluster.connection import NO_RIGHT, Connection
from offsetstream.cluster.rights import OFFSETS_TOPIC, Right
from offsetstream.errors import NoOffsetsTopicError

_NO_TOPIC = KafkaError.UNKNOWN_TOPIC_OR_PART


def kafka_uuid(uuid: Any) -> str:
    """Return the id as Kafka writes it: librdkafka takes another alphabet of base64."""
    return str(uuid).replace("+", "-").replace("/", "_")


class Topics(Connection):
    """A live cluster that is asked for its topics; every question raises what `Connection` does."""

    def cluster_id(self) -> str:
        """Return the cluster's id; from then on every answer of another cluster raises OtherClusterError."""
        self._cluster_id = str(self._ask("the cluster id", lambda: self._metadata(None).cluster_id))
        return self._cluster_id

    def topic_partitions(self, topic: str = OFFSETS_TOPIC) -> list[int]:
        """Return the partitions of the topic; NoOffsetsTopicError if it does not exist."""
        return sorted(self._topic(topic).partitions)

    def leaders(self, topic: str = OFFSETS_TOPIC) -> dict[int, int | None]:
        """Return the broker that leads each partition of the topic, None where none does."""
        partitions = self._topic(topic).partitions
        return {number: found.leader if found.leader >= 0 else None for number, found in partitions.items()}

    def leader_addresses(self, topic: str = OFFSETS_TOPIC) -> dict[int, tuple[str, int] | None]:
        """Return host and port of the broker that leads each partition of the topic, None where none does."""
        partitions = self._topic(topic).partitions
        brokers = self._ask("the brokers", lambda: self._metadata(topic)).brokers
        addresses = {number: (broker.host, broker.port) for number, broker in brokers.items()}
        return {number: addresses.get(found.leader) for number, found in partitions.items()}

    def _topic(self, topic: str) -> Any:
        found = self._ask(f"the topic {topic}", lambda: self._metadata(topic).topics[topic])
        if found.error is None:
            return found
        if found.error.code() == _NO_TOPIC:
            raise NoOffsetsTopicError(f"the topic {topic} does not exist on {self.bootstrap_server}")
        raise self._as_error(f"the topic {topic}", found.error, Right("DESCRIBE", "topic", topic))

    def topics(self) -> list[TopicSeen]:
        """Return the topics that the user may see (DESCRIBE); one that is deleted meanwhile is left out."""
        found, _ = self.describe_topics(self._ask("the topics", lambda: self._metadata(None).topics))
        return [
            TopicSeen(kafka_uuid(seen.topic_id), name, len(seen.partitions), seen.is_internal)
            for name, seen in found.items()
        ]

    def topic_id(self, topic: str = OFFSETS_TOPIC) -> str:
        """Return the id of the topic, which is another one once it was recreated; NoOffsetsTopicError without it."""
        found, _ = self.describe_topics([topic])
        if topic not in found:
            raise NoOffsetsTopicError(f"the topic {topic} does not exist on {self.bootstrap_server}")
        return kafka_uuid(found[topic].topic_id)

    def hidden_topics(self, names: Collection[str]) -> frozenset[str]:
        """Return those of the topics, which need not exist, that the user has no right to see (DESCRIBE)."""
        return self.describe_topics(names)[1]

    def describe_topics(
        self, names: Collection[str], *, operations: bool = False
    ) -> tuple[dict[str, Any], frozenset[str]]:
        """Return what the cluster tells of the topics, by name, and those that the user has no right to see.

        One that is in neither does not exist. With `operations` a description has the `authorized_operations` of
        the user on the topic, empty where the broker does not tell them (before Kafka 2.3).
        """
        if not names:
            return {}, frozenset()
        wanted = sorted(names)
        return self._ask_again("the topics", lambda timeout: self._describe_topics(wanted, operations, timeout))

    def _describe_topics(
        self, names: list[str], operations: bool, timeout: float
    ) -> tuple[dict[str, Any], frozenset[str]]:
        asked = self._admin.describe_topics(
            TopicCollection(names), include_authorized_operations=operations, request_timeout=timeout
        )
        found, codes = self._settle(asked)
        if other := next((error for error in codes.values() if error.code() not in (*NO_RIGHT, _NO_TOPIC)), None):
            raise KafkaException(other)
        return found, frozenset(name for name, error in codes.items() if error.code() in NO_RIGHT)
