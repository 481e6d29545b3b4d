"""Find the coordinator of a group as the cluster names it (FindCoordinator), and check that it serves the group."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaException, TopicPartition
from tenacity import retry_if_result

from offsetstream.cluster.client import Cluster
from offsetstream.cluster.connection import NO_COORDINATOR, NO_RIGHT, TIMEOUT, kafka_name, patience
from offsetstream.cluster.records import consuming
from offsetstream.cluster.rights import OFFSETS_TOPIC, Right, describe_each
from offsetstream.coordinator.partitioning import partition_for

_COMMITTED_SECONDS = 5.0
_ATTEMPT_SECONDS, _MIN_ATTEMPT_SECONDS = 10.0, 1.0


@dataclass(frozen=True)
class Broker:
    """A broker and the address that clients use."""

    broker_id: int
    host: str
    port: int

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Coordination:
    """The coordinator of a group: the leader of its offsets partition, and the broker that FindCoordinator names.

    `offsets_partition` comes from Kafka's hash of the group id. If the cluster places groups in another way, it comes
    from the tables (None: unknown). `error` is Kafka's name of the reason if no broker answered in time.
    """

    offsets_partition: int | None
    leader_id: int | None
    coordinator: Broker | None
    error: str | None = None


class CoordinatorLookup(Cluster):
    """A live cluster: its brokers and the coordinators of groups."""

    def brokers(self) -> dict[int, Broker]:
        """Return the current brokers by id."""
        found = self._ask("the brokers", lambda: self._metadata(None).brokers)
        return {number: Broker(number, broker.host, broker.port) for number, broker in found.items()}

    def coordinators(self, group_ids: Collection[str]) -> dict[str, Broker]:
        """Return the coordinator of each group. The groups need not exist. Needs DESCRIBE on the groups.

        Waits for a coordinator that is not available. Raises UnreachableError if that takes too long.
        """
        if not group_ids:
            return {}
        futures = self._admin.describe_consumer_groups(list(group_ids), request_timeout=TIMEOUT)
        found, errors = self._ask("the coordinators", lambda: self._settle_by_coordinators(futures))
        for group, error in errors.items():
            raise self._as_error(f"the coordinator of {group}", error, Right("DESCRIBE", "group", group))
        nodes = {group: description.coordinator for group, description in found.items()}
        return {group: Broker(node.id, node.host, node.port) for group, node in nodes.items()}

    def coordinator_ids(self, group_ids: Collection[str]) -> dict[str, int]:
        """Return the broker id of each coordinator that is found within 10 seconds."""
        names = [
            group_id for group_id in group_ids if group_id and "\0" not in group_id
        ]  # librdkafka cuts an id at a NUL
        if not names:
            return {}
        futures = self._admin.describe_consumer_groups(names, request_timeout=_ATTEMPT_SECONDS)
        found, _ = self._ask("the coordinators", lambda: self._settle_by_coordinators(futures))
        return {group_id: each.coordinator.id for group_id, each in found.items() if each.coordinator}

    def coordinations(
        self, group_ids: Collection[str], timeout: float = TIMEOUT, homes: Mapping[str, int] | None = None
    ) -> dict[str, Coordination]:
        """Return the coordinator of each group. The groups need not exist. Needs DESCRIBE on the groups and the topic.

        `homes` has the offsets partition of each group if the cluster does not use Kafka's hash. If a partition has no
        leader, or its leader is loading or unreachable, retry with growing pauses for up to `timeout` seconds. After
        that, the result has the error.
        """
        found: dict[str, Coordination] = {}
        deadline = time.monotonic() + timeout

        def ask() -> bool:
            remaining = [group_id for group_id in group_ids if group_id not in found or found[group_id].error]
            found.update(
                self._coordinations(
                    remaining, homes, max(min(deadline - time.monotonic(), _ATTEMPT_SECONDS), _MIN_ATTEMPT_SECONDS)
                )
            )
            return any(each.error for each in found.values())

        patience(retry_if_result(bool), timeout)(ask)
        return found

    def _coordinations(
        self, group_ids: Collection[str], homes: Mapping[str, int] | None, timeout: float
    ) -> dict[str, Coordination]:
        leaders = self.leaders(OFFSETS_TOPIC)
        numbers = {
            group_id: partition_for(group_id, len(leaders)) if homes is None else homes.get(group_id)
            for group_id in group_ids
        }
        led = [group_id for group_id, number in numbers.items() if number is None or leaders[number] is not None]
        answers, errors = self._ask(
            "the coordinators",
            lambda: self._settle_by_coordinators(
                self._admin.describe_consumer_groups(led, request_timeout=timeout) if led else {}
            ),
        )
        refused = [group_id for group_id, error in errors.items() if error.code() in NO_RIGHT]
        if refused:
            raise self.lacks(describe_each("group", refused))
        found = {}
        for group_id, number in numbers.items():
            node = answers[group_id].coordinator if group_id in answers else None
            error = kafka_name(errors[group_id]) if group_id in errors else NO_COORDINATOR
            found[group_id] = Coordination(
                number,
                None if number is None else leaders[number],
                node and Broker(node.id, node.host, node.port),
                None if node else error,
            )
        return found


def is_coordinated(bootstrap_server: str, properties: Mapping[str, str], group_id: str) -> bool:
    """Return whether a consumer of the group can read its committed offsets. The group need not exist.

    It cannot if the coordinator is unavailable or loading, or if brokers disagree about who the coordinator is. They
    may disagree after the offsets topic got more partitions, since a broker reads their number only when it starts. If
    the user lacks the right, the answer is True, because a coordinator did answer.
    """
    try:
        with consuming(bootstrap_server, properties, {"group.id": group_id}) as consumer:
            consumer.committed([TopicPartition(OFFSETS_TOPIC, 0)], timeout=_COMMITTED_SECONDS)
    except KafkaException as error:
        return error.args[0].code() in NO_RIGHT
    return True
