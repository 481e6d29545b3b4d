"""A live cluster: its topics, where logs end, settings, and what the user may see."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AclOperation, ConfigResource, OffsetSpec, ResourceType
from tenacity import retry, retry_if_exception, retry_if_result, stop_after_delay, wait_fixed

from offsetstream.cluster.answers import PartitionEnds, RecordPlace, TopicDescription
from offsetstream.cluster.connection import LEADER_MOVES, NO_RIGHT, TIMEOUT, Connection
from offsetstream.cluster.rights import (
    ALL_GROUPS,
    ALL_TOPICS,
    BROKER_SETTINGS,
    GROUP_PREFIX,
    OFFSETS_TOPIC,
    OWN_GROUPS,
    READ_OFFSETS,
    Right,
    describe_each,
)
from offsetstream.coordinator.partitioning import Coordinator
from offsetstream.errors import NoOffsetsTopicError, UnreachableError

_COORDINATOR_TIMEOUT = 10.0  # seconds
_NO_TOPIC = KafkaError.UNKNOWN_TOPIC_OR_PART
_LEADER_TIMEOUT = 10.0  # shorter, so that one silent leader does not delay the answers of the others


def _is_leader_moving(error: BaseException) -> bool:
    reason = error.__cause__
    return isinstance(reason, KafkaException) and reason.args[0].code() in LEADER_MOVES


# While leaders move, the client may know older or newer leaders than the brokers.
_retry_while_leaders_move = retry(
    retry=retry_if_exception(_is_leader_moving), stop=stop_after_delay(10), wait=wait_fixed(0.2), reraise=True
)


_retry_briefly_while_leaders_move = retry(
    retry=retry_if_result(lambda found: found[1] is not None and _is_leader_moving(found[1])),
    stop=stop_after_delay(2),
    wait=wait_fixed(0.2),
    retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
)
# The last stable offset comes last. So it is below the high watermark only because of an open transaction, and not
# because of records that came between two requests.
_ENDS = (
    (OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED),
    (OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED),
    (OffsetSpec.latest(), IsolationLevel.READ_COMMITTED),
)


class Cluster(Connection):
    """A live Kafka cluster. Every request raises what `Connection` raises."""

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

    def leader_addresses(self) -> dict[int, tuple[str, int] | None]:
        """Return host and port of each partition's leader, None without one."""
        partitions = self._topic(OFFSETS_TOPIC).partitions
        brokers = self._ask("the brokers", lambda: self._metadata(OFFSETS_TOPIC)).brokers
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

    def hidden_groups(self, group_ids: Collection[str]) -> frozenset[str]:
        """Return the groups for which the user lacks DESCRIBE. The groups need not exist.

        A group whose coordinator does not answer within 10 seconds is not included. librdkafka cuts a group id at a
        NUL and skips an empty id, so this method does the same.
        """
        names = sorted({group_id.partition("\0")[0] for group_id in group_ids} - {""})
        if not names:
            return frozenset()

        def ask() -> frozenset[str]:
            futures = self._admin.describe_consumer_groups(names, request_timeout=_COORDINATOR_TIMEOUT)
            _, errors = self._settle_by_coordinators(futures)
            return frozenset(group_id for group_id, error in errors.items() if error.code() in NO_RIGHT)

        return self._ask("the groups", ask)

    @_retry_while_leaders_move
    def partition_ends(self, partitions: Iterable[int], topic: str = OFFSETS_TOPIC) -> dict[int, PartitionEnds]:
        """Return the start offset, the end offsets and the leader of partitions of the topic."""
        ends, error = self._ask_ends(partitions, topic, TIMEOUT)
        if error:
            raise error
        return ends

    def available_ends(self, partitions: Iterable[int], topic: str = OFFSETS_TOPIC) -> dict[int, PartitionEnds]:
        """Return the same, but only for partitions whose leader answers within 10 seconds.

        Raises UnreachableError if some partitions have a leader and none answers.
        """
        leaders = self.leaders(topic)
        led = [number for number in partitions if leaders.get(number) is not None]
        ends, error = self._ask_ends(led, topic, _LEADER_TIMEOUT)
        if error and not ends:
            raise error
        return ends

    @_retry_briefly_while_leaders_move
    def _ask_ends(
        self, partitions: Iterable[int], topic: str, timeout: float
    ) -> tuple[dict[int, PartitionEnds], UnreachableError | None]:
        """Return the answers of the leaders, and an error if some did not answer."""
        asked_at, failure = datetime.now(UTC), None
        self.leaders(topic)  # otherwise librdkafka may use old leader epochs for minutes, and brokers refuse them
        found, places = [], [(topic, partition) for partition in partitions]
        for spec, isolation in _ENDS:
            answers, error = self._ask_offsets(places, spec, isolation, timeout)
            found.append(answers)
            # If a leader does not answer in time, librdkafka may return a negative offset instead of an error.
            answered = [key for key, each in answers.items() if each.offset >= 0]
            if len(answered) < len(places):
                failure = error or UnreachableError(
                    f"{self.bootstrap_server} does not return all offsets of {topic} at the moment"
                )
            places = answered
        (start, high, stable), leaders = found, self.leaders(topic)
        ends = {
            key[1]: PartitionEnds(
                start[key].offset,
                min(stable[key].offset, high[key].offset),
                high[key].offset,
                leaders.get(key[1]),
                high[key].leader_epoch,
                asked_at,
            )
            for key in places
        }
        return ends, failure

    def latest_record(self) -> RecordPlace:
        """Return the record of the offsets topic with the largest timestamp."""
        places = [(OFFSETS_TOPIC, number) for number in self.topic_partitions()]
        isolation = IsolationLevel.READ_UNCOMMITTED
        found, error = self._ask_offsets(places, OffsetSpec.max_timestamp(), isolation, TIMEOUT)
        if error:
            raise error
        (_, number), latest = max(found.items(), key=lambda each: each[1].timestamp)
        return RecordPlace(number, latest.offset, latest.timestamp)

    def topic_settings(self) -> dict[str, str | None]:
        """Return the settings of the offsets topic. Raises UnauthorisedError without DESCRIBE_CONFIGS on it."""
        return self._config(ResourceType.TOPIC, OFFSETS_TOPIC, Right("DESCRIBE_CONFIGS", "topic", OFFSETS_TOPIC))

    def coordinator_kind(self) -> Coordinator:
        """Return which group coordinator the brokers run: `new` (Java, the default since 4.0) or `classic`.

        A broker's settings tell it (reference 0): 3.x runs the new one only if the consumer protocol is enabled.
        Raises UnauthorisedError without DESCRIBE_CONFIGS on the cluster.
        """
        config = self.broker_settings()
        if config.get("group.coordinator.new.enable") is not None:
            return "new" if config["group.coordinator.new.enable"] == "true" else "classic"
        before_4_0 = "log.message.format.version" in config
        has_new = "consumer" in (config.get("group.coordinator.rebalance.protocols") or "")
        return "new" if has_new or not before_4_0 else "classic"

    def broker_settings(self) -> dict[str, str | None]:
        """Return the settings of any broker. Raises UnauthorisedError without DESCRIBE_CONFIGS on the cluster."""
        broker = next(iter(self._ask("the brokers", lambda: self._metadata(None).brokers)))
        return self._config(ResourceType.BROKER, str(broker), BROKER_SETTINGS)

    def _config(self, kind: ResourceType, name: str, right: Right) -> dict[str, str | None]:
        resource = ConfigResource(kind, name)
        answer = self._admin.describe_configs([resource], request_timeout=TIMEOUT)[resource]
        entries = self._result(f"the settings of {name}", answer, right)
        return {entry.name: entry.value for entry in entries.values()}

    def _ask_offsets(
        self, places: list[tuple[str, int]], spec: OffsetSpec, isolation: Any, timeout: float
    ) -> tuple[dict[tuple[str, int], Any], UnreachableError | None]:
        """Return the answers, and an error if some leaders did not answer. Raises all other errors."""
        if not places:
            return {}, None
        requests = {TopicPartition(topic, number): spec for topic, number in places}
        answers = self._admin.list_offsets(requests, isolation_level=isolation, request_timeout=timeout)
        found: dict[tuple[str, int], Any] = {}
        failure: UnreachableError | None = None
        for partition, answer in answers.items():
            right = Right("DESCRIBE", "topic", partition.topic)
            try:
                offset = self._result(f"the offsets of {partition.topic}", answer, right)
            except UnreachableError as error:
                failure = error
            else:
                found[partition.topic, partition.partition] = offset
        return found, failure


def kafka_uuid(uuid: Any) -> str:
    """Return the id as Kafka writes it. librdkafka uses another base64 alphabet."""
    return str(uuid).replace("+", "-").replace("/", "_")


def deletes_records(topic_settings: Mapping[str, str | None]) -> bool:
    """Return whether retention deletes records of a topic with these settings, even the last one of a key."""
    return "delete" in (topic_settings.get("cleanup.policy") or "")


# A cluster silently omits from its lists what a user may not DESCRIBE: groups, topics, a group's offsets. Then an empty
# answer proves nothing. But a request for one name returns an error if the right is missing, even if that name does not
# exist: so the functions below find out what is hidden.


def readable_partitions(cluster: Cluster) -> list[int]:
    """Return the partitions of the offsets topic, if Spark's consumers may read it as this user.

    Raises NoOffsetsTopicError, and UnauthorisedError at once, where Spark would need many seconds.
    """
    found, hidden = cluster.describe_topics([OFFSETS_TOPIC], operations=True)
    if hidden:
        raise cluster.lacks([READ_OFFSETS])
    if not found:
        raise NoOffsetsTopicError(f"topic {OFFSETS_TOPIC} does not exist on {cluster.bootstrap_server}")
    topic = found[OFFSETS_TOPIC]
    operations = topic.authorized_operations
    missing = [READ_OFFSETS] if operations and AclOperation.READ not in operations else []
    if cluster.hidden_groups([f"{GROUP_PREFIX}-{uuid4()}"]):
        missing.append(OWN_GROUPS)
    if missing:
        raise cluster.lacks(missing)
    return sorted(partition.id for partition in topic.partitions)


def require_to_read(cluster: Cluster, topics: Collection[str]) -> None:
    """Raise UnauthorisedError unless the user may READ the topics. Ignores topics that do not exist.

    Brokers before Kafka 2.3 do not return rights; they refuse the later request.
    """
    found, hidden = cluster.describe_topics(topics, operations=True)
    refused = [
        name
        for name, topic in found.items()
        if topic.authorized_operations and AclOperation.READ not in topic.authorized_operations
    ]
    missing = sorted({*hidden, *refused})
    if missing:
        raise cluster.lacks([Right("READ", "topic", name) for name in missing])


def require_to_see_topics_of_groups(cluster: Cluster, topics: Collection[str]) -> None:
    """Raise UnauthorisedError unless the user may READ these topics (none: may see all topics).

    Brokers silently omit a group's offsets for topics that the user may not see.
    """
    if topics:
        require_to_read(cluster, topics)
    elif not sees_all_topics(cluster):
        raise cluster.lacks([ALL_TOPICS])


def sees_all_topics(cluster: Cluster) -> bool:
    """Return whether the user may see every topic, except those that an ACL denies, by a request for a random name."""
    return not cluster.hidden_topics([uuid4().hex])


def require_to_see_everything(cluster: Cluster) -> None:
    """Raise UnauthorisedError unless the user may see every group and topic, except those that an ACL denies."""
    missing = [] if sees_all_topics(cluster) else [ALL_TOPICS]
    missing += [ALL_GROUPS] if cluster.hidden_groups([uuid4().hex]) else []
    if missing:
        raise cluster.lacks(missing)


def require_to_see(cluster: Cluster, topics: Collection[str], groups: Collection[str]) -> None:
    """Raise UnauthorisedError if one of these topics and groups is hidden from the user."""
    missing = describe_each("topic", cluster.hidden_topics(topics))
    missing += describe_each("group", cluster.hidden_groups(groups))
    if missing:
        raise cluster.lacks(missing)
