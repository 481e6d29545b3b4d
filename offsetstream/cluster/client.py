"""The questions that the job and the look-ups ask of the live cluster."""

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
from offsetstream.coordinator.kinds import Coordinator
from offsetstream.errors import UnreachableError

_COORDINATOR_TIMEOUT = 10.0  # seconds
_LEADER_TIMEOUT = 10.0  # where the others' answers are not to wait for one


def _passes(error: BaseException) -> bool:
    reason = error.__cause__
    return isinstance(reason, KafkaException) and reason.args[0].code() in LEADER_MOVES


# Meanwhile the client has an older idea of the leaders than the brokers, or a newer one.
_again_while_leaders_move = retry(
    retry=retry_if_exception(_passes), stop=stop_after_delay(10), wait=wait_fixed(0.2), reraise=True
)


_once_more_while_leaders_move = retry(
    retry=retry_if_result(lambda found: found[1] is not None and _passes(found[1])),
    stop=stop_after_delay(2),
    wait=wait_fixed(0.2),
    retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
)
# The last stable offset last: so it is below the high watermark by an open transaction only, not by what came between.
_ENDS = (
    (OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED),
    (OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED),
    (OffsetSpec.latest(), IsolationLevel.READ_COMMITTED),
)


def takes_records(topic_settings: Mapping[str, str | None]) -> bool:
    """Tell whether retention takes records of a topic with these settings, also the last one of a key."""
    return "delete" in (topic_settings.get("cleanup.policy") or "")


class Cluster(Topics):
    """A live Kafka cluster; every question raises what `Connection` does."""

    def hidden_groups(self, group_ids: Collection[str]) -> frozenset[str]:
        """Return those of the groups, which need not exist, that the user has no right to see (DESCRIBE).

        A group whose coordinator does not answer within 10 seconds is none of them. librdkafka ends an id at a NUL,
        and asks for none that is empty.
        """
        names = sorted({group_id.partition("\0")[0] for group_id in group_ids} - {""})
        if not names:
            return frozenset()

        def ask() -> frozenset[str]:
            asked = self._admin.describe_consumer_groups(names, request_timeout=_COORDINATOR_TIMEOUT)
            _, errors = self._settle_by_coordinators(asked)
            return frozenset(group_id for group_id, error in errors.items() if error.code() in NO_RIGHT)

        return self._ask("the groups", ask)

    @_again_while_leaders_move
    def partition_ends(self, partitions: Iterable[int], topic: str = OFFSETS_TOPIC) -> dict[int, PartitionEnds]:
        """Return the start, the ends and the leader of the given partitions of the topic."""
        ends, silent = self._ask_ends(partitions, topic, TIMEOUT)
        if silent:
            raise silent
        return ends

    def answered_ends(self, partitions: Iterable[int], topic: str = OFFSETS_TOPIC) -> dict[int, PartitionEnds]:
        """Return the same, but of those alone that have a leader which answers in 10 seconds.

        UnreachableError if some have a leader, and none answers.
        """
        leaders = self.leaders(topic)
        led = [number for number in partitions if leaders.get(number) is not None]
        ends, silent = self._ask_ends(led, topic, _LEADER_TIMEOUT)
        if silent and not ends:
            raise silent
        return ends

    @_once_more_while_leaders_move
    def _ask_ends(
        self, partitions: Iterable[int], topic: str, timeout: float
    ) -> tuple[dict[int, PartitionEnds], UnreachableError | None]:
        """Return what the leaders answer, and why some do not."""
        asked_at, why = datetime.now(UTC), None
        self.leaders(topic)  # else librdkafka may ask by older leader epochs, and be refused, for minutes
        found, asked = [], [(topic, partition) for partition in partitions]
        for spec, isolation in _ENDS:
            answers, silent = self._ask_offsets(asked, spec, isolation, timeout)
            found.append(answers)
            # Of a leader that did not answer in time librdkafka may give offsets below zero instead of an error.
            given = [key for key, each in answers.items() if each.offset >= 0]
            if len(given) < len(asked):
                why = silent or UnreachableError(
                    f"{self.bootstrap_server} does not give all offsets of {topic} for now"
                )
            asked = given
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
            for key in asked
        }
        return ends, why

    def latest_record(self, topic: str = OFFSETS_TOPIC) -> RecordPlace:
        """Return the record of the topic that has the greatest timestamp."""
        asked = [(topic, number) for number in self.topic_partitions(topic)]
        found = self._list_offsets(asked, OffsetSpec.max_timestamp(), IsolationLevel.READ_UNCOMMITTED)
        (_, number), latest = max(found.items(), key=lambda each: each[1].timestamp)
        return RecordPlace(number, latest.offset, latest.timestamp)

    def topic_settings(self, topic: str = OFFSETS_TOPIC) -> dict[str, str | None]:
        """Return the settings of the topic; UnauthorisedError without DESCRIBE_CONFIGS on it."""
        return self._config(ResourceType.TOPIC, topic, Right("DESCRIBE_CONFIGS", "topic", topic))

    def coordinator_kind(self) -> Coordinator:
        """Return which group coordinator the brokers run: `new` (Java, default from 4.0) or `classic`.

        Told from a broker's settings (reference 0): 3.x runs the new one only where the consumer protocol is on.
        UnauthorisedError without DESCRIBE_CONFIGS on the cluster.
        """
        config = self.broker_settings()
        if config.get("group.coordinator.new.enable") is not None:
            return "new" if config["group.coordinator.new.enable"] == "true" else "classic"
        before_4_0 = "log.message.format.version" in config
        has_new = "consumer" in (config.get("group.coordinator.rebalance.protocols") or "")
        return "new" if has_new or not before_4_0 else "classic"

    def broker_settings(self) -> dict[str, str | None]:
        """Return the settings of one of the brokers; UnauthorisedError without DESCRIBE_CONFIGS on the cluster."""
        broker = next(iter(self._ask("the brokers", lambda: self._metadata(None).brokers)))
        return self._config(ResourceType.BROKER, str(broker), BROKER_SETTINGS)

    def _config(self, kind: ResourceType, name: str, right: Right) -> dict[str, str | None]:
        resource = ConfigResource(kind, name)
        answer = self._admin.describe_configs([resource], request_timeout=TIMEOUT)[resource]
        entries = self._result(f"the settings of {name}", answer, right)
        return {entry.name: entry.value for entry in entries.values()}

    def _list_offsets(
        self, asked: list[tuple[str, int]], spec: OffsetSpec, isolation: Any
    ) -> dict[tuple[str, int], Any]:
        answers, silent = self._ask_offsets(asked, spec, isolation, TIMEOUT)
        if silent:
            raise silent
        return answers

    def _ask_offsets(
        self, asked: list[tuple[str, int]], spec: OffsetSpec, isolation: Any, timeout: float
    ) -> tuple[dict[tuple[str, int], Any], UnreachableError | None]:
        """Return what the leaders answer, and why some do not; other errors are raised."""
        if not asked:
            return {}, None
        wanted = {TopicPartition(topic, number): spec for topic, number in asked}
        answers = self._admin.list_offsets(wanted, isolation_level=isolation, request_timeout=timeout)
        found: dict[tuple[str, int], Any] = {}
        silent: UnreachableError | None = None
        for partition, answer in answers.items():
            right = Right("DESCRIBE", "topic", partition.topic)
            try:
                offset = self._result(f"the offsets of {partition.topic}", answer, right)
            except UnreachableError as error:
                silent = error
            else:
                found[partition.topic, partition.partition] = offset
        return found, silent
