"""A small __consumer_offsets, made up record by record: bytes as Kafka writes them, and their expected meaning."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from offsetstream.codec.embedded_protocols import encode_embedded
from offsetstream.codec.records import encode_record
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.stream.apply.log_pass import HistoryTarget
from offsetstream.stream.apply.raw_reader import RAW_SCHEMA
from offsetstream.stream.records import Decoder
from offsetstream.tables.filters import NO_FILTERS, Filters
from testkit.merge_model import HOSTILE

PARTITIONS = 4
NO_HISTORY = HistoryTarget({}, {}, {}, is_decoded=False)  # where only the state matters
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
LONG_MAX = 2**63 - 1
_START_MS = 1_767_225_600_000
_NO_JSON: dict[str, Any] = {}


@dataclass(frozen=True)
class Record:
    """A record of the log. `key_json` is empty if the key cannot be decoded; `value_json` is None for a tombstone."""

    offsets_partition: int
    record_offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    key_json: dict[str, Any]
    value_json: dict[str, Any] | None

    @property
    def key_type(self) -> int:
        number: int = self.key_json["type"]
        return number


def raw_rows(records: Iterable[Record]) -> pa.Table:
    """Return the records as the Kafka source gives them to the job."""
    rows = [
        {
            "offsets_partition": record.offsets_partition,
            "record_offset": record.record_offset,
            "record_timestamp": record.timestamp_ms * 1000,
            "key": record.key,
            "value": record.value,
        }
        for record in records
    ]
    return pa.Table.from_pylist(rows, schema=RAW_SCHEMA)


def frame(spark: SparkSession, records: Iterable[Record]) -> DataFrame:
    """Return the same rows as a Spark frame."""
    return spark.createDataFrame(raw_rows(records))


def decode(raw: DataFrame, placed_by: int, filters: Filters = NO_FILTERS) -> DataFrame:
    """Decode raw records in Spark."""
    return Decoder(placed_by, filters).decode(raw)


def random_log(seed: int, steps: int) -> list[Record]:
    """Return a log of `PARTITIONS` partitions with `steps` steps in each, in offset order."""
    return [record for partition in range(PARTITIONS) for record in _Partition(seed, partition).run(steps)]


SOME = Filters(group_exclude=r"group-\d*[02468]", topic_exclude="")


def some_filtered(record: Record) -> bool:
    """Whether the filter SOME drops the record: groups with even numbers, and offsets of the topic without a name."""
    if not record.key_json:
        return False
    group, topic = (record.key_json["data"].get(name) for name in ("group", "topic"))
    group = record.key_json["data"].get("groupId", group)
    return (group.startswith("group-") and int(group[6:]) % 2 == 0) or topic == ""


class _Partition:
    """Writes one offsets partition: some groups of its own, and two that another partition coordinates."""

    def __init__(self, seed: int, partition: int) -> None:
        self._rng = Random(f"{seed}/{partition}")
        self._partition = partition
        self._next_offset = self._rng.randrange(10)
        names = [*HOSTILE, *(f"group-{number}" for number in range(40))]
        own = [name for name in names if partition_for(name, PARTITIONS) == partition]
        stray = [name for name in names if partition_for(name, PARTITIONS) == (partition + 1) % PARTITIONS]
        self._groups = [*self._rng.sample(stray, 2), *self._rng.sample(own, 8)]
        self._simple = self._groups[1:6]  # groups with offsets only
        self._epoch = 0
        self._append_began: int | None = None  # at this offset: its records are adjacent and have one timestamp

    def run(self, steps: int) -> Iterator[Record]:
        of_simple = [self._commit, self._commit, self._forget, self._forget, self._classic_ends, self._undecodable]
        of_others = [*of_simple, self._classic, self._classic, self._classic]
        for _ in range(steps):
            group = self._rng.choice(self._groups)
            if group in self._simple:
                yield self._rng.choice(of_simple)(group)
            elif self._rng.random() < 0.25:
                yield from self._consumer_group(group)
            else:
                yield self._rng.choice(of_others)(group)

    def _write(self, key: dict[str, Any], value: dict[str, Any] | None) -> Record:
        return self._append(*encode_record(key, value), key, value)

    def _append(
        self, key: bytes | None, value: bytes | None, key_json: dict[str, Any], value_json: dict[str, Any] | None
    ) -> Record:
        offset = self._next_offset
        time = offset if self._append_began is None else self._append_began
        # Markers and compaction leave gaps.
        self._next_offset += 1 if self._append_began is not None else self._rng.choice([1, 1, 1, 2, 9])
        return Record(self._partition, offset, _START_MS + time * 1000 + 7, key, value, key_json, value_json)

    def _commit_key(self, group: str) -> dict[str, Any]:
        topics = ["t"] if group in self._simple else ["t", "", "a\0'b\n"]
        topic, partition = self._rng.choice(topics), self._rng.randrange(2)
        # Both key versions name the same committed offset.
        return {
            "type": self._rng.choice([0, 1, 1, 1]),
            "data": {"group": group, "topic": topic, "partition": partition},
        }

    def _commit(self, group: str) -> Record:
        version = self._rng.randrange(5)
        data: dict[str, Any] = {"offset": self._rng.choice([0, 42, LONG_MAX])}
        if version >= 3:
            data["leaderEpoch"] = self._rng.choice([-1, 0, 7])
        data["metadata"] = self._rng.choice(["", "text", "\0é😀"])
        data["commitTimestamp"] = self._rng.choice([_START_MS, LONG_MAX, -LONG_MAX, 0])
        if version == 1:
            data["expireTimestamp"] = self._rng.choice([-1, _START_MS + 1, LONG_MAX])
        if version == 4 and self._rng.random() < 0.5:
            data["topicId"] = TOPIC_ID
        return self._write(self._commit_key(group), {"version": version, "data": data})

    def _forget(self, group: str) -> Record:
        return self._write(self._commit_key(group), None)

    def _classic(self, group: str) -> Record:
        version, generation = self._rng.randrange(5), self._rng.randrange(9)
        members = [self._classic_member(version, number) for number in range(self._rng.randrange(3))]
        data: dict[str, Any] = {
            "protocolType": self._rng.choice(["consumer", "consumer", "connect", ""]),
            "generation": generation,
            "protocol": "range" if members else None,
            "leader": self._rng.choice([None, "member-0"]) if members else None,
        }
        if version >= 2:
            data["currentStateTimestamp"] = self._rng.choice([-1, _START_MS, LONG_MAX])
        value = {"version": version, "data": data | {"members": members}}
        return self._write({"type": 2, "data": {"group": group}}, value)

    def _classic_member(self, version: int, number: int) -> dict[str, Any]:
        topics = [{"topic": topic, "partitions": [number, number + 2]} for topic in self._rng.sample(["t", "", "u"], 2)]
        assignment = encode_embedded(
            "consumer_protocol_assignment", 0, {"assignedPartitions": topics, "userData": None}
        )
        member: dict[str, Any] = {"memberId": f"member-{number}"}
        if version >= 3:
            member["groupInstanceId"] = self._rng.choice([None, "static"])
        member |= {"clientId": "client", "clientHost": "/10.0.0.1"}
        if version >= 1:
            member["rebalanceTimeout"] = self._rng.choice([-1, 300_000])
        sent = self._rng.choice([assignment, assignment, b"", b"\xff\xff garbage"])
        return member | {"sessionTimeout": 10_000, "subscription": "", "assignment": b64encode(sent).decode()}

    def _classic_ends(self, group: str) -> Record:
        return self._write({"type": 2, "data": {"group": group}}, None)

    def _consumer_group(self, group: str) -> Iterator[Record]:
        """Write a member's join as brokers do, and sometimes the group's deletion (reference 5.7, 5.8)."""
        self._append_began = self._next_offset
        yield from self._member_joins(group)
        if self._rng.random() < 0.7:
            self._append_began = self._rng.choice([self._append_began, self._next_offset])
            yield from self._group_ends(group)
        self._append_began = None
        self._next_offset += self._rng.choice([0, 3])

    def _member_joins(self, group: str) -> Iterator[Record]:
        member = {"groupId": group, "memberId": self._rng.choice(["one", "two"])}
        whole = {"groupId": group}
        self._epoch += 1
        partitions = [{"topicId": TOPIC_ID, "partitions": [self._rng.randrange(3)]}]
        yield self._write({"type": 2, "data": {"group": group}}, None)
        yield self._write({"type": 5, "data": member}, {"version": 0, "data": _CONSUMER_MEMBER})
        yield self._write({"type": 3, "data": whole}, {"version": 0, "data": {"epoch": self._epoch}})
        yield self._write({"type": 7, "data": member}, {"version": 0, "data": {"topicPartitions": partitions}})
        yield self._write({"type": 6, "data": whole}, {"version": 0, "data": {"assignmentEpoch": self._epoch}})
        current: dict[str, Any] = {"memberEpoch": self._epoch, "previousMemberEpoch": self._epoch - 1, "state": 0}
        current |= {"assignedPartitions": partitions, "partitionsPendingRevocation": []}
        yield self._write({"type": 8, "data": member}, {"version": 0, "data": current})

    def _group_ends(self, group: str) -> Iterator[Record]:
        members, whole = [{"groupId": group, "memberId": name} for name in ("one", "two")], {"groupId": group}
        yield from (self._write({"type": 8, "data": key}, None) for key in members)
        yield from (self._write({"type": 7, "data": key}, None) for key in members)
        yield self._write({"type": 6, "data": whole}, None)
        yield from (self._write({"type": 5, "data": key}, None) for key in members)
        yield self._write({"type": 3, "data": whole}, None)

    def _undecodable(self, group: str) -> Record:
        commit = encode_record(self._commit_key(group), None)[0]
        classic = encode_record({"type": 2, "data": {"group": group}}, None)[0]
        key, value = self._rng.choice(
            [
                (None, b"\x00\x03"),
                (None, None),
                (b"", b"\x00"),
                (b"\x00\x01garbage", b"\x00\x03"),
                (b"\x03\xe7\x00\x01a", b"\x00\x00"),
                (commit, b""),
                (commit, b"\x00\x03\x00"),
                (commit, b"\x00\x09" + bytes(40)),
                (classic, b"garbage"),
                (classic, b"\x00\x63" + bytes(40)),
            ]
        )
        return self._append(key, value, _NO_JSON, None)


_CONSUMER_MEMBER = {
    "instanceId": None,
    "rackId": "rack",
    "clientId": "client",
    "clientHost": "/10.0.0.2",
    "subscribedTopicNames": ["t"],
    "subscribedTopicRegex": None,
    "rebalanceTimeoutMs": 45_000,
    "serverAssignor": "uniform",
    "classicMemberMetadata": None,
}
