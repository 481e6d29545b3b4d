"""What a coordinator writes: its records and tombstones, and what an append's result means for clients.

Errors have Kafka's names. Records: reference 4.9, 5.6, 5.7.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum, auto

from offsetstream.codec.batches import NO_PRODUCER
from offsetstream.codec.record_layouts import ZERO_UUID
from offsetstream.codec.records import encode_key, encode_record
from offsetstream.coordinator.loaded_partitions import OffsetConfig
from offsetstream.coordinator.replay.classic_group import ClassicGroup, GroupState
from offsetstream.coordinator.replay.modern_groups import ConsumerGroup, ShareGroup
from offsetstream.coordinator.replay.offsets import OffsetAndMetadata, OffsetsStore, TopicPartition
from offsetstream.coordinator.replay.partition import Group

Record = tuple[bytes, bytes | None]
COMMIT_VERSION = {"classic": 3, "new": 4}  # as 3.9 and 4.1 write them (reference 6)
_NONE_32, _WITH_EXPIRY = -1, 1
_GROUP_VERSION = 3
# Key types, in the order in which 4.3.1 writes them: one key per member, target assignment or pattern, or one (None).
_CONSUMER = (
    (8, "member"),
    (7, "target"),
    (6, None),
    (5, "member"),
    (16, "pattern"),
    (4, None),
    (3, None),
)
_SHARE = ((14, "member"), (13, "target"), (12, None), (10, "member"), (15, None), (11, None))
_STREAMS = ((22, "member"), (21, "target"), (20, None), (19, "member"), (17, None), (23, None))


class Errors(StrEnum):
    """The part of Kafka's Errors that a coordinator's cache uses."""

    @staticmethod
    def _generate_next_value_(name: str, *_: object) -> str:
        return name

    NONE = auto()
    CORRUPT_MESSAGE = auto()
    COORDINATOR_LOAD_IN_PROGRESS = auto()
    COORDINATOR_NOT_AVAILABLE = auto()
    GROUP_ID_NOT_FOUND = auto()
    GROUP_SUBSCRIBED_TO_TOPIC = auto()
    INVALID_COMMIT_OFFSET_SIZE = auto()
    INVALID_FETCH_SIZE = auto()
    INVALID_GROUP_ID = auto()
    KAFKA_STORAGE_ERROR = auto()
    MESSAGE_TOO_LARGE = auto()
    NETWORK_EXCEPTION = auto()
    NON_EMPTY_GROUP = auto()
    NOT_COORDINATOR = auto()
    NOT_ENOUGH_REPLICAS = auto()
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = auto()
    NOT_LEADER_OR_FOLLOWER = auto()
    OFFSET_METADATA_TOO_LARGE = auto()
    REBALANCE_IN_PROGRESS = auto()
    RECORD_LIST_TOO_LARGE = auto()
    REQUEST_TIMED_OUT = auto()
    UNKNOWN_SERVER_ERROR = auto()
    UNKNOWN_TOPIC_OR_PARTITION = auto()
    UNSTABLE_OFFSET_COMMIT = auto()
    UNSUPPORTED_FOR_MESSAGE_FORMAT = auto()


_TOO_LARGE = (Errors.MESSAGE_TOO_LARGE, Errors.RECORD_LIST_TOO_LARGE, Errors.INVALID_FETCH_SIZE)
_MOVED = dict.fromkeys((Errors.NOT_LEADER_OR_FOLLOWER, Errors.KAFKA_STORAGE_ERROR), Errors.NOT_COORDINATOR)
_UNAVAILABLE = dict.fromkeys(
    (Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.NOT_ENOUGH_REPLICAS, Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
    Errors.COORDINATOR_NOT_AVAILABLE,
)

# GroupMetadataManager.storeOffsets and storeGroup (3.9); CoordinatorOperationExceptionHelper (4.3.1).
CLASSIC_COMMIT_ERRORS: Mapping[Errors, Errors] = (
    _UNAVAILABLE | _MOVED | dict.fromkeys(_TOO_LARGE, Errors.INVALID_COMMIT_OFFSET_SIZE)
)
CLASSIC_GROUP_ERRORS: Mapping[Errors, Errors] = (
    _UNAVAILABLE
    | _MOVED
    | dict.fromkeys(_TOO_LARGE, Errors.UNKNOWN_SERVER_ERROR)
    | {Errors.REQUEST_TIMED_OUT: Errors.REBALANCE_IN_PROGRESS}
)
NEW_ERRORS: Mapping[Errors, Errors] = (
    dict.fromkeys(
        (Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.NOT_ENOUGH_REPLICAS, Errors.REQUEST_TIMED_OUT),
        Errors.COORDINATOR_NOT_AVAILABLE,
    )
    | _MOVED
    | dict.fromkeys(_TOO_LARGE, Errors.UNKNOWN_SERVER_ERROR)
    | {Errors.NETWORK_EXCEPTION: Errors.COORDINATOR_LOAD_IN_PROGRESS}
)


@dataclass(frozen=True, slots=True)
class PendingAppend:
    """Records to append as one batch to `partition`, with the acks, timeout and compression of `config`.

    `errors` has the answers that are already known, by topic partition, or under `GROUP` for a group. Without records
    there is nothing to append. Report the result of the append once, with `complete`.
    """

    partition: int
    records: tuple[Record, ...]
    errors: Mapping[TopicPartition, Errors]
    config: OffsetConfig
    producer_id: int = NO_PRODUCER
    on_append: Callable[[Errors, int | None], Mapping[TopicPartition, Errors]] = lambda _error, _offset: {}

    def complete(self, error: Errors = Errors.NONE, base_offset: int | None = None) -> dict[TopicPartition, Errors]:
        """Report how the append ended, with the batch's base offset if it succeeded. Return the clients' answers."""
        return {**self.errors, **(self.on_append(error, base_offset) if self.records else {})}


GROUP = TopicPartition("", -1)
"""The key under which the answer to `store_group` is."""


@dataclass(frozen=True, slots=True)
class OffsetWrite:
    """Commits of one group while they are written. A group that is Dead by then ignores the result of the append."""

    group: Group
    store: OffsetsStore
    commits: Mapping[TopicPartition, OffsetAndMetadata]
    producer_id: int
    client_errors: Mapping[Errors, Errors]

    def prepare(self) -> None:
        """Mark the commits as in flight, or as pending in the producer's transaction."""
        if self.producer_id == NO_PRODUCER:
            self.store.for_group(self.group.group_id).in_flight.update(self.commits)
        else:
            self.store.open_transaction(self.producer_id, self.group.group_id).update(self.commits)

    def on_append(self, error: Errors, base_offset: int | None) -> Mapping[TopicPartition, Errors]:
        """Apply the result of the append, and return the clients' answers."""
        if self.group.state is not GroupState.DEAD:
            for index, (topic_partition, commit) in enumerate(self.commits.items()):
                if error is not Errors.NONE:
                    self._fail(topic_partition, commit)
                else:
                    self._succeed(topic_partition, commit, -1 if base_offset is None else base_offset, index)
        return dict.fromkeys(self.commits, self.client_errors.get(error, error))

    def _succeed(
        self, topic_partition: TopicPartition, commit: OffsetAndMetadata, base_offset: int, index: int
    ) -> None:
        # The classic coordinator orders commits by their batch, the new one by their record (reference 5.9 item 1).
        appended = commit.appended_at(base_offset + (index if self.client_errors is NEW_ERRORS else 0))
        offsets = self.store.for_group(self.group.group_id)
        if self.producer_id != NO_PRODUCER:
            pending = offsets.pending.get(self.producer_id, {})
            if pending.get(topic_partition) == commit:
                pending[topic_partition] = appended
        elif topic_partition in offsets.in_flight:
            offsets.put_if_newer(topic_partition, appended)
            if offsets.in_flight[topic_partition] == commit:
                del offsets.in_flight[topic_partition]

    def _fail(self, topic_partition: TopicPartition, commit: OffsetAndMetadata) -> None:
        offsets = self.store.for_group(self.group.group_id)
        if self.producer_id != NO_PRODUCER:
            offsets.pending.get(self.producer_id, {}).pop(topic_partition, None)
            self.store.close_if_empty(self.producer_id, self.group.group_id)
        elif offsets.in_flight.get(topic_partition) == commit:
            del offsets.in_flight[topic_partition]


def commit_record(group_id: str, topic_partition: TopicPartition, commit: OffsetAndMetadata, version: int) -> Record:
    """Return the record of a commit, in a version from 1 on."""
    key = {"group": group_id, "topic": topic_partition.topic, "partition": topic_partition.partition}
    epoch = {"leaderEpoch": _NONE_32 if commit.leader_epoch is None else commit.leader_epoch}
    value = {"offset": commit.offset, "metadata": commit.metadata, "commitTimestamp": commit.commit_timestamp_ms}
    if commit.expire_timestamp_ms is not None:
        version, value = _WITH_EXPIRY, value | {"expireTimestamp": commit.expire_timestamp_ms}
    else:
        value |= epoch
    if version >= 4:  # noqa: PLR2004 - the first with a topic id
        value |= {"topicId": commit.topic_id or ZERO_UUID}
    return encode_record({"type": 1, "data": key}, {"version": version, "data": value})


def group_record(group: ClassicGroup, assignment: Mapping[str, bytes]) -> Record:
    """Return the record of a classic group, with the assignment of each member."""
    timestamp = group.current_state_timestamp_ms
    value = {
        "protocolType": group.protocol_type or "",
        "generation": group.generation,
        "protocol": group.protocol_name,
        "leader": group.leader_id,
        "currentStateTimestamp": -1 if timestamp is None else timestamp,
        "members": [
            {
                "memberId": member.member_id,
                "groupInstanceId": member.group_instance_id,
                "clientId": member.client_id,
                "clientHost": member.client_host,
                "rebalanceTimeout": member.rebalance_timeout_ms,
                "sessionTimeout": member.session_timeout_ms,
                "subscription": member.subscription,
                "assignment": assignment.get(member.member_id, b""),
            }
            for member in group.members.values()
        ],
    }
    key = {"type": 2, "data": {"group": group.group_id}}
    return encode_record(key, {"version": _GROUP_VERSION, "data": value})


def offset_tombstone(group_id: str, partition: TopicPartition) -> bytes:
    """Return the key of the tombstone of a committed offset. Its type is always 1, even for a type 0 commit."""
    data = {"group": group_id, "topic": partition.topic, "partition": partition.partition}
    return encode_key({"type": 1, "data": data})


def group_tombstones(group: Group) -> list[bytes]:
    """Return the keys of the tombstones that remove a group, in Kafka's order."""
    if isinstance(group, ClassicGroup):
        return [encode_key({"type": 2, "data": {"group": group.group_id}})]
    order = _CONSUMER if isinstance(group, ConsumerGroup) else _SHARE if isinstance(group, ShareGroup) else _STREAMS
    patterns = group.resolved_regular_expressions if isinstance(group, ConsumerGroup) else ()
    parts: dict[str | None, list[dict[str, str]]] = {
        None: [{}],
        "member": [{"memberId": member_id} for member_id in sorted(group.members)],
        "target": [{"memberId": member_id} for member_id in sorted(group.target_assignment)],
        "pattern": [{"regularExpression": pattern} for pattern in sorted(patterns)],
    }
    return [
        encode_key({"type": key_type, "data": {"groupId": group.group_id} | more})
        for key_type, per in order
        for more in parts[per]
    ]
