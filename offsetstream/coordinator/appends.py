"""Build the records that a coordinator writes for its clients, and handle the result of the append."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from offsetstream.codec.batches import NO_PRODUCER
from offsetstream.codec.record_layouts import ZERO_UUID
from offsetstream.codec.records import encode_record
from offsetstream.coordinator.client_errors import (
    CLASSIC_COMMIT_ERRORS,
    CLASSIC_GROUP_ERRORS,
    NEW_ERRORS,
    Errors,
    to_client_error,
)
from offsetstream.coordinator.fetch import coordinator_error
from offsetstream.coordinator.loaded_partitions import LoadedPartitions
from offsetstream.coordinator.offset_config import OffsetConfig
from offsetstream.coordinator.replay.classic_group import ClassicGroup
from offsetstream.coordinator.replay.group_states import GroupState
from offsetstream.coordinator.replay.offsets import OffsetAndMetadata, OffsetsStore, TopicPartition
from offsetstream.coordinator.replay.partition_replay import Group

Record = tuple[bytes, bytes | None]
_NONE_32, _WITH_EXPIRY = -1, 1
_COMMIT_VERSION = {"classic": 3, "new": 4}  # as 3.9 and 4.1 write them (reference 6)
_GROUP_VERSION = 3


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


def store_offsets(
    cache: LoadedPartitions, group: Group, offsets: Mapping[TopicPartition, OffsetAndMetadata], producer_id: int
) -> PendingAppend:
    """See GroupMetadataCache.store_offsets."""
    partition = cache.partition_for(group.group_id)
    error = Errors.COORDINATOR_NOT_AVAILABLE if group.state is GroupState.DEAD else Errors.NONE
    too_large = [
        topic_partition for topic_partition, commit in offsets.items() if not _is_metadata_valid(commit, cache.config)
    ]
    accepted = {
        topic_partition: commit for topic_partition, commit in offsets.items() if topic_partition not in too_large
    }
    error = coordinator_error(cache, group.group_id) if error is Errors.NONE and accepted else error
    if error is not Errors.NONE:
        return PendingAppend(partition, (), dict.fromkeys(offsets, error), cache.config, producer_id)
    too_large_errors = dict.fromkeys(too_large, Errors.OFFSET_METADATA_TOO_LARGE)
    owner = cache.owner(group.group_id)
    if not accepted or owner is None:
        return PendingAppend(partition, (), too_large_errors, cache.config, producer_id)
    write = _OffsetWrite(
        group, owner.offsets, accepted, producer_id, NEW_ERRORS if cache.is_new else CLASSIC_COMMIT_ERRORS
    )
    write.prepare()
    version = _COMMIT_VERSION[cache.coordinator]
    records = tuple(
        _commit_record(group.group_id, topic_partition, commit, version) for topic_partition, commit in accepted.items()
    )
    return PendingAppend(partition, records, too_large_errors, cache.config, producer_id, write.on_append)


def store_group(cache: LoadedPartitions, group: ClassicGroup, assignment: Mapping[str, bytes]) -> PendingAppend:
    """See GroupMetadataCache.store_group."""
    partition = cache.partition_for(group.group_id)
    if not cache.is_partition_owned(partition):
        return PendingAppend(partition, (), {GROUP: Errors.NOT_COORDINATOR}, cache.config)
    client_errors = NEW_ERRORS if cache.is_new else CLASSIC_GROUP_ERRORS
    return PendingAppend(
        partition,
        (_group_record(group, assignment),),
        {},
        cache.config,
        on_append=lambda error, _: {GROUP: to_client_error(error, client_errors)},
    )


@dataclass(frozen=True, slots=True)
class _OffsetWrite:
    """Commits of one group while they are written. A group that is Dead by then ignores the result of the append."""

    group: Group
    store: OffsetsStore
    commits: Mapping[TopicPartition, OffsetAndMetadata]
    producer_id: int
    client_errors: Mapping[Errors, Errors]

    def prepare(self) -> None:
        if self.producer_id == NO_PRODUCER:
            self.store.for_group(self.group.group_id).in_flight.update(self.commits)
        else:
            self.store.open_transaction(self.producer_id, self.group.group_id).update(self.commits)

    def on_append(self, error: Errors, base_offset: int | None) -> Mapping[TopicPartition, Errors]:
        if self.group.state is not GroupState.DEAD:
            for index, (topic_partition, commit) in enumerate(self.commits.items()):
                if error is not Errors.NONE:
                    self._fail(topic_partition, commit)
                else:
                    self._succeed(topic_partition, commit, -1 if base_offset is None else base_offset, index)
        return dict.fromkeys(self.commits, to_client_error(error, self.client_errors))

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


def _is_metadata_valid(commit: OffsetAndMetadata, config: OffsetConfig) -> bool:
    code_units = len(commit.metadata.encode("utf-16-le", "surrogatepass")) // 2
    return code_units <= config.offset_metadata_max_bytes


def _commit_record(group_id: str, topic_partition: TopicPartition, commit: OffsetAndMetadata, version: int) -> Record:
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


def _group_record(group: ClassicGroup, assignment: Mapping[str, bytes]) -> Record:
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
