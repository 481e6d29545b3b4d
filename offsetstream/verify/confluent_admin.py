"""A cluster's answers through confluent-kafka, for installations without Kafka's own Admin client.

It does not see share and streams groups. It treats group ids as C strings: it refuses an empty id and truncates an id
at a NUL. The metadata of offsets is not read: version 2.16.1 returned bytes that no client had written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from offsetstream.cluster.properties import librdkafka_config
from offsetstream.errors import ClusterError
from offsetstream.verify.answers import Answers, Row

UNSEEN_TYPES = ("Share", "Streams")
_TIMEOUT = 30.0  # seconds
_TYPES = {"CLASSIC": "Classic", "CONSUMER": "Consumer"}
# librdkafka reports all other states as unknown.
_STATES = {
    "EMPTY": "Empty",
    "STABLE": "Stable",
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
    "DEAD": "Dead",
}


class ConfluentAdmin:
    """confluent-kafka's Admin client for classic and consumer groups."""

    def __init__(self, bootstrap_server: str, properties: Mapping[str, str]) -> None:
        self._server = bootstrap_server
        self._admin = AdminClient(
            {**librdkafka_config(properties, bootstrap_server), "bootstrap.servers": bootstrap_server}
        )

    def answers(self) -> Answers:
        """Return the cluster's answers, without groups that disappear meanwhile. Raises ClusterError."""
        found = Answers(invisible_types=UNSEEN_TYPES, cuts_group_ids=True)
        try:
            ids = self.list_ids()
            # Describe first: librdkafka aborts the process if a coordinator is away when offsets are requested.
            described = self._admin.describe_consumer_groups(ids, request_timeout=_TIMEOUT) if ids else {}
            for group_id, answer in described.items():
                group = _unless_gone(answer)
                if group is None or group.state.name == "DEAD":  # older brokers report a missing group like this
                    found.gone.add(group_id)
                else:
                    _add(found, group)
                    found.offsets += self._offsets(group_id)
        except KafkaException as error:
            raise ClusterError(f"cannot read the groups of {self._server}: {error.args[0].str()}") from error
        return found

    def list_ids(self) -> list[str]:
        """Return the sorted ids of the groups that can be queried."""
        listed = self._admin.list_consumer_groups(request_timeout=_TIMEOUT).result(_TIMEOUT)
        if listed.errors:
            raise listed.errors[0]
        named = {group.group_id for group in listed.valid if group.type.name in _TYPES}
        # Brokers before 3.8 report no group type and have classic groups only.
        return sorted((named or {group.group_id for group in listed.valid}) - {""})

    def _offsets(self, group_id: str) -> list[Row]:
        asked = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])[group_id]
        return [
            {
                "group_id": group_id,
                "topic": place.topic,
                "partition": place.partition,
                "committed_offset": place.offset,
                "leader_epoch": None if place.leader_epoch in (None, -1) else place.leader_epoch,
            }
            for place in asked.result(_TIMEOUT).topic_partitions
            if place.offset >= 0
        ]


def _unless_gone(answer: Future[Any]) -> Any | None:
    try:
        return answer.result(_TIMEOUT)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
            raise
        return None


def _add(found: Answers, group: Any) -> None:
    group_type = _TYPES[group.type.name]
    found.groups.append(
        {
            "group_id": group.group_id,
            "group_type": group_type,
            "state": _STATES.get(group.state.name),
            "is_simple": bool(group.is_simple_consumer_group) if group_type == "Classic" else None,
            "protocol": (group.partition_assignor or None) if group_type == "Classic" else None,
            "member_count": len(group.members),
            "coordinator_id": group.coordinator.id,
        }
    )
    for member in group.members:
        names = {"group_id": group.group_id, "member_id": member.member_id}
        target = member.target_assignment
        identity = {"client_id": member.client_id, "client_host": member.host, "tells_target": target is not None}
        found.members.append({**names, **identity, "group_instance_id": member.group_instance_id})
        found.assignments += _places(names, "assigned", member.assignment.topic_partitions)
        if target is not None:
            found.assignments += _places(names, "target", target.topic_partitions)


def _places(names: Row, kind: str, partitions: Iterable[TopicPartition]) -> list[Row]:
    return [
        {**names, "kind": kind, "subtopology_id": None, "topic": place.topic, "partition": place.partition}
        for place in partitions
    ]
