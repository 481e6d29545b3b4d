"""The requests that the job and the look-ups send to the live cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType
from tenacity import retry, retry_if_exception, retry_if_result, stop_after_delay, wait_fixed

from offsetstream.cluster.answers import PartitionEnds, RecordPlace
from offsetstream.cluster.connection import LEADER_MOVES, NO_RIGHT, TIMEOUT
from offsetstream.cluster.rights import BROKER_SETTINGS, OFFSETS_TOPIC, Right
from offsetstream.cluster.topics import Topics
from offsetstream.coordinator.coordinator_kind import Coordinator
from offsetstream.errors import UnreachableError

_COORDINATOR_TIMEOUT = 10.0  # seconds
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


def deletes_records(topic_settings: Mapping[str, str | None]) -> bool:
    """Return whether retention deletes records of a topic with these settings, even the last one of a key."""
    return "delete" in (topic_settings.get("cleanup.policy") or "")


class Cluster(Topics):
    """A live Kafka cluster. Every request raises what `Connection` raises."""

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

    def latest_record(self, topic: str = OFFSETS_TOPIC) -> RecordPlace:
        """Return the record of the topic with the largest timestamp."""
        places = [(topic, number) for number in self.topic_partitions(topic)]
        found = self._list_offsets(places, OffsetSpec.max_timestamp(), IsolationLevel.READ_UNCOMMITTED)
        (_, number), latest = max(found.items(), key=lambda each: each[1].timestamp)
        return RecordPlace(number, latest.offset, latest.timestamp)

    def topic_settings(self, topic: str = OFFSETS_TOPIC) -> dict[str, str | None]:
        """Return the settings of the topic. Raises UnauthorisedError without DESCRIBE_CONFIGS on it."""
        return self._config(ResourceType.TOPIC, topic, Right("DESCRIBE_CONFIGS", "topic", topic))

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

    def _list_offsets(
        self, places: list[tuple[str, int]], spec: OffsetSpec, isolation: Any
    ) -> dict[tuple[str, int], Any]:
        answers, error = self._ask_offsets(places, spec, isolation, TIMEOUT)
        if error:
            raise error
        return answers

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
