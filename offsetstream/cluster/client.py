"""The questions that the job and the look-ups ask of the live cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from offsetstream.cluster.properties import librdkafka_config
from offsetstream.errors import (
    ClusterError,
    NoOffsetsTopicError,
    OffsetstreamError,
    UnauthorisedError,
    UnreachableError,
)

OFFSETS_TOPIC = "__consumer_offsets"
TIMEOUT = 30.0  # seconds
QUIET = logging.getLogger("offsetstream.librdkafka")  # what it says reaches users in our errors
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False
_UNREACHABLE = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._RESOLVE}
_REFUSED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION,
}


@dataclass(frozen=True)
class PartitionEnds:
    """An offsets partition as the cluster sees it now; offsets are exclusive ends, -1 epochs are None."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    coordinator_id: int | None
    coordinator_epoch: int | None


@dataclass(frozen=True)
class TopicSeen:
    """A topic as the cluster has it now; ``topic_id`` in Kafka's 22 characters."""

    topic_id: str
    name: str
    partitions: int
    is_internal: bool


def _uuid(uuid: Any) -> str:
    """Return the id as Kafka writes it: librdkafka takes another alphabet of base64."""
    return str(uuid).replace("+", "-").replace("/", "_")


class Cluster:
    """A live Kafka cluster, asked through confluent-kafka with the user's own client properties."""

    def __init__(self, bootstrap_server: str, properties: Mapping[str, str] | None = None) -> None:
        self.bootstrap_server = bootstrap_server
        self._errors: list[KafkaError] = []
        self._admin = AdminClient(
            {
                "client.id": "offsetstream",
                "socket.connection.setup.timeout.ms": 10_000,
                **librdkafka_config(properties or {}),
                "bootstrap.servers": bootstrap_server,
                "error_cb": self._errors.append,
            },
            logger=QUIET,
        )

    def cluster_id(self) -> str:
        """Return the cluster's id."""
        return str(self._ask("the cluster id", lambda: self._metadata(None).cluster_id))

    def topic_partitions(self, topic: str = OFFSETS_TOPIC) -> list[int]:
        """Return the partitions of the topic; NoOffsetsTopicError if it does not exist."""
        found = self._ask(f"the topic {topic}", lambda: self._metadata(topic).topics[topic])
        if found.error is not None:
            if found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise NoOffsetsTopicError(f"the topic {topic} does not exist on {self.bootstrap_server}")
            raise self._as_error(f"the topic {topic}", found.error)
        return sorted(found.partitions)

    def leaders(self, topic: str = OFFSETS_TOPIC) -> dict[int, int | None]:
        """Return the broker that leads each partition of the topic, None where none does."""
        partitions = self._ask(f"the topic {topic}", lambda: self._metadata(topic).topics[topic].partitions)
        return {number: found.leader if found.leader >= 0 else None for number, found in partitions.items()}

    def topics(self) -> list[TopicSeen]:
        """Return the topics that the user may see (DESCRIBE); one that is deleted meanwhile is left out."""
        names = sorted(self._ask("the topics", lambda: self._metadata(None).topics))
        if not names:
            return []
        asked = self._admin.describe_topics(TopicCollection(names), request_timeout=TIMEOUT)
        found = [topic for topic in map(self._if_there, asked.values()) if topic is not None]
        return [TopicSeen(_uuid(seen.topic_id), seen.name, len(seen.partitions), seen.is_internal) for seen in found]

    def _if_there(self, answer: Future[Any]) -> Any | None:
        try:
            return answer.result(timeout=TIMEOUT + 5)
        except KafkaException as error:
            if error.args[0].code() in (*_REFUSED, KafkaError.UNKNOWN_TOPIC_OR_PART):
                return None
            raise self._as_error("the topics", error.args[0]) from error

    def partition_ends(self, partitions: Iterable[int], topic: str = OFFSETS_TOPIC) -> dict[int, PartitionEnds]:
        """Return the start, the ends and the leader of the given partitions of the topic."""
        asked = [(topic, partition) for partition in partitions]
        start = self._list_offsets(asked, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)
        stable = self._list_offsets(asked, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
        high = self._list_offsets(asked, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        leaders = self.leaders(topic)
        return {
            number: PartitionEnds(
                start[key].offset,
                stable[key].offset,
                high[key].offset,
                leaders.get(number),
                high[key].leader_epoch,
            )
            for key in asked
            for number in (key[1],)
        }

    def end_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Return the end offset (high watermark) of each topic partition; one that does not exist is left out."""
        existing = {name: set(topic.partitions) for name, topic in self._metadata(None).topics.items()}
        asked = [(topic, number) for topic, number in partitions if number in existing.get(topic, ())]
        ends = self._list_offsets(asked, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        return {partition: found.offset for partition, found in ends.items()}

    def topic_config(self, name: str, topic: str = OFFSETS_TOPIC) -> str | None:
        """Return one setting of the topic; UnauthorisedError without DESCRIBE_CONFIGS on it."""
        return self._config(ResourceType.TOPIC, topic).get(name)

    def coordinator_kind(self) -> str:
        """Return which group coordinator the brokers run: ``new`` (Java, default from 4.0) or ``classic``.

        Told from a broker's settings (reference 0): 3.x runs the new one only where the consumer protocol is on.
        UnauthorisedError without DESCRIBE_CONFIGS on the cluster.
        """
        broker = next(iter(self._ask("the brokers", lambda: self._metadata(None).brokers)))
        config = self._config(ResourceType.BROKER, str(broker))
        if config.get("group.coordinator.new.enable") is not None:
            return "new" if config["group.coordinator.new.enable"] == "true" else "classic"
        before_4_0 = "log.message.format.version" in config
        has_new = "consumer" in (config.get("group.coordinator.rebalance.protocols") or "")
        return "new" if has_new or not before_4_0 else "classic"

    def _config(self, kind: ResourceType, name: str) -> dict[str, str | None]:
        resource = ConfigResource(kind, name)
        answer = self._admin.describe_configs([resource], request_timeout=TIMEOUT)[resource]
        entries = self._result(f"the settings of {name} (DESCRIBE_CONFIGS)", answer)
        return {entry.name: entry.value for entry in entries.values()}

    def _metadata(self, topic: str | None) -> Any:
        return self._admin.list_topics(topic, timeout=TIMEOUT) if topic else self._admin.list_topics(timeout=TIMEOUT)

    def _list_offsets(
        self, asked: list[tuple[str, int]], spec: OffsetSpec, isolation: Any
    ) -> dict[tuple[str, int], Any]:
        if not asked:
            return {}
        wanted = {TopicPartition(topic, number): spec for topic, number in asked}
        answers = self._admin.list_offsets(wanted, isolation_level=isolation, request_timeout=TIMEOUT)
        return {
            (partition.topic, partition.partition): self._result(f"the offsets of {partition.topic}", answer)
            for partition, answer in answers.items()
        }

    def _result(self, what: str, answer: Future[Any]) -> Any:
        return self._ask(what, lambda: answer.result(timeout=TIMEOUT + 5))

    def _ask(self, what: str, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except KafkaException as error:
            raise self._as_error(what, error.args[0]) from error

    def _as_error(self, what: str, error: KafkaError) -> OffsetstreamError:
        for heard in [error, *self._errors]:
            if heard.code() in _REFUSED:
                return UnauthorisedError(
                    f"{self.bootstrap_server} refuses {what}: {heard.str()}; see the rights in the README, and "
                    "the credentials in --command-config"
                )
        if error.code() in _UNREACHABLE:
            reason = self._errors[-1].str() if self._errors else error.str()
            return UnreachableError(f"no broker answers at {self.bootstrap_server}: {reason}")
        return ClusterError(f"cannot ask {self.bootstrap_server} for {what}: {error.str()}")
