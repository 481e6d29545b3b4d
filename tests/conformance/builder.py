"""A small log, batch by batch: records from Kafka's own serialisers, written by producers and in transactions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from offsetstream.codec.batches import NO_PRODUCER, ControlType, LogRecord, RecordBatch
from offsetstream.codec.embedded_protocols import encode_assignment, encode_subscription
from offsetstream.codec.records import encode_record

Pair: TypeAlias = tuple[bytes | None, bytes | None]
GROUP = "foo"
TIMESTAMP = 1_700_000_000_000
T1, T2 = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


class Log:
    """Batches of one partition; `start` is the offset of the first record."""

    def __init__(self, start: int = 0) -> None:
        self.batches: tuple[RecordBatch, ...] = ()
        self._next = start

    def write(self, *pairs: Pair, producer: int = NO_PRODUCER, transactional: bool | None = None) -> Log:
        """Write one batch. With a producer it belongs to its transaction, unless said otherwise."""
        is_transactional = producer != NO_PRODUCER if transactional is None else transactional
        records = tuple(LogRecord(self._next + at, TIMESTAMP, key, value) for at, (key, value) in enumerate(pairs))
        return self._append(records, producer, is_transactional)

    def end(self, producer: int, control: int = ControlType.COMMIT) -> Log:
        """Write the marker that ends a producer's transaction."""
        marker = b"\0\0" + int(control).to_bytes(2, "big")
        return self._append((LogRecord(self._next, TIMESTAMP, marker, bytes(6)),), producer, True, is_control=True)

    def abort(self, producer: int) -> Log:
        return self.end(producer, ControlType.ABORT)

    def empty(self, producer: int = NO_PRODUCER, *, is_control: bool = False) -> Log:
        """Write a batch that compaction has emptied."""
        return self._append((), producer, is_control, is_control=is_control, length=1)

    def compacted(self, keep: Iterable[int]) -> Log:
        """Return the log with only the records at these offsets. Batches stay, even if empty."""
        kept = set(keep)
        log = Log()
        log.batches = tuple(
            RecordBatch(
                batch.base_offset,
                batch.next_offset,
                tuple(record for record in batch.records if record.offset in kept or batch.is_control),
                batch.producer_id,
                batch.producer_epoch,
                batch.is_transactional,
                batch.is_control,
                batch.size,
            )
            for batch in self.batches
        )
        log._next = self._next
        return log

    def _append(
        self,
        records: tuple[LogRecord, ...],
        producer: int,
        transactional: bool,
        *,
        is_control: bool = False,
        length: int = 0,
    ) -> Log:
        base, self._next = self._next, self._next + max(len(records), length)
        epoch = -1 if producer == NO_PRODUCER else 0
        size = 61 + sum(len(record.key or b"") + len(record.value or b"") for record in records)
        self.batches += (RecordBatch(base, self._next, records, producer, epoch, transactional, is_control, size),)
        return self


def commit(
    topic: str, partition: int, offset: int, *, group: str = GROUP, version: int = 3, key_type: int = 1, **fields: Any
) -> Pair:
    value: dict[str, Any] = {"offset": offset}
    if version >= 3:
        value["leaderEpoch"] = -1
    value |= {"metadata": "", "commitTimestamp": TIMESTAMP}
    if version == 1:
        value["expireTimestamp"] = -1
    key = {"type": key_type, "data": {"group": group, "topic": topic, "partition": partition}}
    return encode_record(key, {"version": version, "data": value | fields})


def forget(topic: str, partition: int, *, group: str = GROUP, key_type: int = 1) -> Pair:
    key = {"type": key_type, "data": {"group": group, "topic": topic, "partition": partition}}
    return encode_record(key, None)


def commits(**offsets: int) -> tuple[Pair, ...]:
    """Commits of group foo: `foo_0=23` is partition 0 of topic foo at offset 23."""
    return tuple(
        commit(name.rpartition("_")[0], int(name.rpartition("_")[2]), offset) for name, offset in offsets.items()
    )


FIXTURE = {"foo_0": 23, "foo_1": 455, "bar_0": 8992}
"""The commits of Kafka's own load tests (reference 9.1)."""


def cells(group: str = GROUP, /, **offsets: int) -> dict[tuple[str, str, int], int]:
    """The expected offsets after `commits`."""
    return {(group, name.rpartition("_")[0], int(name.rpartition("_")[2])): offset for name, offset in offsets.items()}


def classic_member(member_id: str = "98098230493", **fields: Any) -> dict[str, Any]:
    """A member as in Kafka's own tests: its subscription and assignment are zero bytes."""
    return {
        "memberId": member_id,
        "groupInstanceId": None,
        "clientId": "clientId",
        "clientHost": "clientHost",
        "rebalanceTimeout": 30_000,
        "sessionTimeout": 10_000,
        "subscription": b"",
        "assignment": b"",
    } | fields


def classic(*members: dict[str, Any], group: str = GROUP, version: int = 3, **fields: Any) -> Pair:
    value = {
        "protocolType": "consumer",
        "generation": 935,
        "protocol": "range" if members else None,
        "leader": members[0]["memberId"] if members else None,
        "currentStateTimestamp": TIMESTAMP,
    } | fields
    if version < 2:
        del value["currentStateTimestamp"]
    absent = {0: ("rebalanceTimeout", "groupInstanceId"), 1: ("groupInstanceId",), 2: ("groupInstanceId",)}
    value["members"] = [{n: v for n, v in m.items() if n not in absent.get(version, ())} for m in members]
    return encode_record({"type": 2, "data": {"group": group}}, {"version": version, "data": value})


def classic_tombstone(group: str = GROUP) -> Pair:
    return encode_record({"type": 2, "data": {"group": group}}, None)


def subscription(*topics: str) -> bytes:
    return encode_subscription({"topics": list(topics), "userData": None}, 0)


def assignment(**partitions: list[int]) -> bytes:
    entries = [{"topic": topic, "partitions": numbers} for topic, numbers in partitions.items()]
    return encode_assignment({"assignedPartitions": entries, "userData": None}, 0)


def new(key_type: int, value: dict[str, Any] | None, *, group: str = GROUP, **key: str) -> Pair:
    """A record of a consumer, share or streams group; None for a tombstone."""
    whole_key = {"type": key_type, "data": {"groupId": group, **key}}
    return encode_record(whole_key, None if value is None else {"version": 0, "data": value})


def consumer_member(member: str = "m1", *, group: str = GROUP, **fields: Any) -> Pair:
    value = {
        "instanceId": None,
        "rackId": None,
        "clientId": "clientId",
        "clientHost": "clientHost",
        "subscribedTopicNames": ["foo"],
        "subscribedTopicRegex": "",
        "rebalanceTimeoutMs": 45_000,
        "serverAssignor": None,
        "classicMemberMetadata": None,
    }
    return new(5, value | fields, group=group, memberId=member)


def topics(**partitions: list[int]) -> list[dict[str, Any]]:
    """Partitions by topic id: `T1=[0, 1]`."""
    return [{"topicId": {"T1": T1, "T2": T2}[name], "partitions": numbers} for name, numbers in partitions.items()]


def current(epoch: int, member: str = "m1", *, group: str = GROUP, state: int = 0, **partitions: list[int]) -> Pair:
    value = {
        "memberEpoch": epoch,
        "previousMemberEpoch": epoch - 1,
        "state": state,
        "assignedPartitions": topics(**partitions),
        "partitionsPendingRevocation": [],
    }
    return new(8, value, group=group, memberId=member)


def share_member(member: str = "m1", *, group: str = GROUP) -> Pair:
    value = {"rackId": None, "clientId": "clientId", "clientHost": "clientHost", "subscribedTopicNames": ["foo"]}
    return new(10, value, group=group, memberId=member)


def share_current(epoch: int, member: str = "m1", *, group: str = GROUP, **partitions: list[int]) -> Pair:
    value = {"memberEpoch": epoch, "previousMemberEpoch": epoch - 1, "state": 0}
    return new(14, value | {"assignedPartitions": topics(**partitions)}, group=group, memberId=member)


def streams_member(member: str = "m1", *, group: str = GROUP, process: str = "process") -> Pair:
    value: dict[str, Any] = {
        "instanceId": None,
        "rackId": None,
        "clientId": "clientId",
        "clientHost": "clientHost",
        "rebalanceTimeoutMs": 1500,
        "topologyEpoch": 1,
        "processId": process,
        "userEndpoint": None,
        "clientTags": [],
    }
    return new(19, value, group=group, memberId=member)


def tasks(**subtopologies: list[int]) -> list[dict[str, Any]]:
    return [{"subtopologyId": name, "partitions": numbers} for name, numbers in subtopologies.items()]


def streams_current(epoch: int, member: str = "m1", *, group: str = GROUP, **active: list[int]) -> Pair:
    value: dict[str, Any] = {"memberEpoch": epoch, "previousMemberEpoch": epoch - 1, "state": 1}
    value |= {"activeTasks": tasks(**active), "standbyTasks": [], "warmupTasks": []}
    value |= {f"{role}TasksPendingRevocation": [] for role in ("active", "standby", "warmup")}
    return new(22, value, group=group, memberId=member)


def streams_target(member: str = "m1", *, group: str = GROUP, **active: list[int]) -> Pair:
    value = {"activeTasks": tasks(**active), "standbyTasks": [], "warmupTasks": []}
    return new(21, value, group=group, memberId=member)


def topology(epoch: int = 1, *, group: str = GROUP, source: str = "foo") -> Pair:
    subtopology = {
        "subtopologyId": "s",
        "sourceTopics": [source],
        "sourceTopicRegex": [],
        "stateChangelogTopics": [],
        "repartitionSinkTopics": [],
        "repartitionSourceTopics": [],
        "copartitionGroups": [],
    }
    return new(23, {"epoch": epoch, "subtopologies": [subtopology]}, group=group)
