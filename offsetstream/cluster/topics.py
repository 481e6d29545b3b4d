"""Describe the topics of a live cluster: names, ids, partitions, leaders, and topics that the user may not see."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from offsetstream.cluster.answers import TopicDescription
from offsetstream.cluster.connection import NO_RIGHT, Connection
from offsetstream.cluster.rights import OFFSETS_TOPIC, Right
from offsetstream.errors import NoOffsetsTopicError

_NO_TOPIC = KafkaError.UNKNOWN_TOPIC_OR_PART


def kafka_uuid(uuid: Any) -> str:
    """Return the id as Kafka writes it. librdkafka uses another base64 alphabet."""
    return str(uuid).replace("+", "-").replace("/", "_")


class Topics(Connection):
    """A live cluster and its topics. Every request raises what `Connection` raises."""

    def cluster_id(self) -> str:
        """Return the cluster's id. After this call, an answer of another cluster raises OtherClusterError."""
        self._cluster_id = str(self._ask("the cluster id", lambda: self._metadata(None).cluster_id))
        return self._cluster_id

    def topic_partitions(self, topic: str = OFFSETS_TOPIC) -> list[int]:
        """Return the partitions of the topic. Raises NoOffsetsTopicError if it does not exist."""
        return sorted(self._topic(topic).partitions)

    def leaders(self, topic: str = OFFSETS_TOPIC) -> dict[int, int | None]:
        """Return the id of each partition's leader, None without one."""
        partitions = self._topic(topic).partitions
        return {number: found.leader if found.leader >= 0 else None for number, found in partitions.items()}

    def leader_addresses(self, topic: str = OFFSETS_TOPIC) -> dict[int, tuple[str, int] | None]:
        """Return host and port of each partition's leader, None without one."""
        partitions = self._topic(topic).partitions
        brokers = self._ask("the brokers", lambda: self._metadata(topic)).brokers
        addresses = {number: (broker.host, broker.port) for number, broker in brokers.items()}
        return {number: addresses.get(found.leader) for number, found in partitions.items()}

    def _topic(self, topic: str) -> Any:
        found = self._ask(f"the topic {topic}", lambda: self._metadata(topic).topics[topic])
        if found.error is None:
            return found
        if found.error.code() == _NO_TOPIC:
            raise NoOffsetsTopicError(f"topic {topic} does not exist on {self.bootstrap_server}")
        raise self._as_error(f"the topic {topic}", found.error, Right("DESCRIBE", "topic", topic))

    def topics(self) -> list[TopicDescription]:
        """Return the topics that the user may see (DESCRIBE), without those that are deleted meanwhile."""
        found, _ = self.describe_topics(self._ask("the topics", lambda: self._metadata(None).topics))
        return [
            TopicDescription(kafka_uuid(seen.topic_id), name, len(seen.partitions), seen.is_internal)
            for name, seen in found.items()
        ]

    def topic_id(self, topic: str = OFFSETS_TOPIC) -> str:
        """Return the topic's id. Raises NoOffsetsTopicError if the topic does not exist."""
        found, _ = self.describe_topics([topic])
        if topic not in found:
            raise NoOffsetsTopicError(f"topic {topic} does not exist on {self.bootstrap_server}")
        return kafka_uuid(found[topic].topic_id)

    def hidden_topics(self, names: Collection[str]) -> frozenset[str]:
        """Return the topics for which the user lacks DESCRIBE. The topics need not exist."""
        return self.describe_topics(names)[1]

    def describe_topics(
        self, names: Collection[str], *, operations: bool = False
    ) -> tuple[dict[str, Any], frozenset[str]]:
        """Return the descriptions of the topics by name, and the topics that the user may not see.

        A topic that is in neither does not exist. With `operations`, a description has the user's
        `authorized_operations` on the topic, which are empty before Kafka 2.3.
        """
        if not names:
            return {}, frozenset()
        sorted_names = sorted(names)
        return self._ask_again("the topics", lambda timeout: self._describe_topics(sorted_names, operations, timeout))

    def _describe_topics(
        self, names: list[str], operations: bool, timeout: float
    ) -> tuple[dict[str, Any], frozenset[str]]:
        futures = self._admin.describe_topics(
            TopicCollection(names), include_authorized_operations=operations, request_timeout=timeout
        )
        found, codes = self._settle(futures)
        if other := next((error for error in codes.values() if error.code() not in (*NO_RIGHT, _NO_TOPIC)), None):
            raise KafkaException(other)
        return found, frozenset(name for name, error in codes.items() if error.code() in NO_RIGHT)
