"""Which broker the cluster itself names as the coordinator of a group (FindCoordinator), and whether that is one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from offsetstream.cluster.client import Cluster
from offsetstream.cluster.connection import NO_RIGHT, QUIET, TIMEOUT
from offsetstream.cluster.consumers import close
from offsetstream.cluster.properties import librdkafka_config
from offsetstream.cluster.rights import OFFSETS_TOPIC, Right

_COMMITTED_SECONDS = 5.0


@dataclass(frozen=True)
class Broker:
    """A broker, as clients reach it."""

    broker_id: int
    host: str
    port: int

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}"


class CoordinatorLookup(Cluster):
    """A live cluster that is asked for its brokers and for the coordinators of groups."""

    def brokers(self) -> dict[int, Broker]:
        """Return the brokers that are there now, by their id."""
        found = self._ask("the brokers", lambda: self._metadata(None).brokers)
        return {number: Broker(number, broker.host, broker.port) for number, broker in found.items()}

    def coordinators(self, group_ids: Collection[str]) -> dict[str, Broker]:
        """Return the coordinator of each group, whether the group exists or not; needs DESCRIBE on the groups.

        A coordinator that is away is waited for; UnreachableError if none is found in time.
        """
        if not group_ids:
            return {}
        answers = self._admin.describe_consumer_groups(list(group_ids), request_timeout=TIMEOUT)
        found = {
            group: self._result(f"the coordinator of {group}", answer, Right("DESCRIBE", "group", group))
            for group, answer in answers.items()
        }
        nodes = {group: description.coordinator for group, description in found.items()}
        return {group: Broker(node.id, node.host, node.port) for group, node in nodes.items()}


def is_coordinated(bootstrap_server: str, properties: Mapping[str, str], group_id: str) -> bool:
    """Tell whether a consumer of the group, which need not exist, is told what is committed.

    It is not where its coordinator is away or loads, nor where brokers disagree about who that is: each asks for the
    number of offsets partitions when it starts, and some may have started before it was raised. Who lacks the right
    counts as told, since it would be told that.
    """
    config = {
        "client.id": "offsetstream",
        **librdkafka_config(properties, bootstrap_server),
        "bootstrap.servers": bootstrap_server,
        "group.id": group_id,
        "enable.auto.commit": False,
    }
    consumer = Consumer(config, logger=QUIET)
    try:
        consumer.committed([TopicPartition(OFFSETS_TOPIC, 0)], timeout=_COMMITTED_SECONDS)
    except KafkaException as error:
        return error.args[0].code() in NO_RIGHT
    finally:
        close(consumer)
    return True
