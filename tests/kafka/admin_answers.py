"""The cluster's own answers about its groups, from confluent-kafka's Admin client, as plain sorted values.

The client does not see share and streams groups, and lists no offsets in topics that it may not describe.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, MemberDescription

from offsetstream.embedded.clients import is_coordinator_unavailable
from testkit.waiting import await_

_TIMEOUT = 30.0
_STATES = {
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.DEAD: "Dead",
    ConsumerGroupState.EMPTY: "Empty",
    ConsumerGroupState.UNKNOWN: "Unknown",  # Assigning and Reconciling too, which librdkafka does not know
}
_TYPES = {
    ConsumerGroupType.CLASSIC: "Classic",
    ConsumerGroupType.CONSUMER: "Consumer",
    ConsumerGroupType.UNKNOWN: "Unknown",
}


Place = tuple[str, int]  # topic and partition


@dataclass(frozen=True, order=True)
class ListedGroup:
    group_id: str
    group_type: str
    state: str
    is_simple: bool


@dataclass(frozen=True)
class DescribedMember:
    member_id: str
    client_id: str
    client_host: str  # with its slash, as the tables have it
    group_instance_id: str | None
    assigned: tuple[Place, ...]
    target: tuple[Place, ...] | None  # only in KIP-848 groups


@dataclass(frozen=True)
class DescribedGroup:
    group_id: str
    group_type: str
    state: str
    is_simple: bool
    assignor: str
    coordinator_id: int
    members: tuple[DescribedMember, ...]  # by member id


@dataclass(frozen=True)
class CommittedOffset:
    committed_offset: int
    metadata: str
    leader_epoch: int | None


def list_groups(admin: AdminClient) -> list[ListedGroup]:
    """Return all groups of the cluster, sorted by id."""
    listing = admin.list_consumer_groups(request_timeout=_TIMEOUT).result(_TIMEOUT)
    assert not listing.errors, listing.errors
    return sorted(
        ListedGroup(group.group_id, _TYPES[group.type], _STATES[group.state], bool(group.is_simple_consumer_group))
        for group in listing.valid
    )


def describe_groups(admin: AdminClient, group_ids: Iterable[str]) -> dict[str, DescribedGroup]:
    """Describe groups with their members; a group that does not exist raises KafkaException or is Dead."""
    ids = sorted(group_ids)
    if not ids:
        return {}
    futures = admin.describe_consumer_groups(ids, request_timeout=_TIMEOUT)
    return {group_id: _described(futures[group_id].result(_TIMEOUT)) for group_id in ids}


def committed_offsets(admin: AdminClient, group_ids: Iterable[str]) -> dict[tuple[str, str, int], CommittedOffset]:
    """Return all committed offsets of the groups, by (group, topic, partition).

    First wait for their coordinators: if one is missing, librdkafka 2.16 ends the process with a segmentation fault
    instead of an error (its issue 5040: the admin client has no group to refresh the coordinator of).
    """
    group_ids = list(group_ids)
    await_coordinators(admin, group_ids)
    futures = {
        group_id: admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])[group_id]
        for group_id in sorted(group_ids)
    }
    return {
        (group_id, place.topic, place.partition): CommittedOffset(
            place.offset, place.metadata or "", None if place.leader_epoch in (None, -1) else place.leader_epoch
        )
        for group_id, future in futures.items()
        for place in future.result(_TIMEOUT).topic_partitions
        if place.offset >= 0
    }


def await_coordinators(admin: AdminClient, group_ids: Iterable[str]) -> None:
    """Wait until a coordinator answers for each of the groups, which need not exist."""
    waiting = sorted(group_ids)

    def are_available() -> bool:
        futures = admin.describe_consumer_groups(waiting, request_timeout=_TIMEOUT) if waiting else {}
        waiting[:] = [
            each for each, future in futures.items() if is_coordinator_unavailable(future.exception(_TIMEOUT))
        ]
        return not waiting

    await_(are_available, lambda: f"no coordinator for {waiting}")


def _described(group: ConsumerGroupDescription) -> DescribedGroup:
    members = sorted((_member(member) for member in group.members), key=lambda member: member.member_id)
    return DescribedGroup(
        group.group_id,
        _TYPES[group.type],
        _STATES[group.state],
        bool(group.is_simple_consumer_group),
        group.partition_assignor,
        group.coordinator.id,
        tuple(members),
    )


def _member(member: MemberDescription) -> DescribedMember:
    target = member.target_assignment
    return DescribedMember(
        member.member_id,
        member.client_id,
        member.host,
        member.group_instance_id,
        _places(member.assignment.topic_partitions),
        None if target is None else _places(target.topic_partitions),
    )


def _places(partitions: Iterable[TopicPartition]) -> tuple[Place, ...]:
    return tuple(sorted((place.topic, place.partition) for place in partitions))
