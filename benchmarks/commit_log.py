"""Fills __consumer_offsets as brokers of 4.1 and later do: with commits, and now and then a group record."""

from __future__ import annotations

import base64
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property

from confluent_kafka import Producer

from offsetstream.codec.embedded_protocols import encode_assignment, encode_subscription
from offsetstream.codec.records import encode_record
from offsetstream.coordinator.partitioning import partition_for

TOPIC = "__consumer_offsets"
OFFSETS_PARTITIONS = 50
CLIENT_TOPIC = "clicks"
_PARTITIONS_PER_GROUP = 100
_COMMITS_PER_GROUP_RECORD = 3000
_MEMBERS = 3
Record = tuple[int, bytes, bytes]  # offsets partition, key, value
Records = Iterator[Record]


@dataclass(frozen=True)
class Groups:
    """The groups of a log. Each has `each` committed offsets (cells), the last one perhaps fewer.

    `hot`: the one offsets partition that has all groups; without it, groups are spread as brokers spread them.
    """

    cells: int
    hot: int | None = None
    each: int = _PARTITIONS_PER_GROUP

    def group(self, number: int) -> str:
        """Return the name of a group."""
        return f"bench-{number}" if self.hot is None else _names_in(self.hot, self.count)[number]

    @cached_property
    def _homes(self) -> list[int]:
        return [partition_for(self.group(number), OFFSETS_PARTITIONS) for number in range(self.count)]

    @cached_property
    def _keys(self) -> list[bytes]:
        return [_key(self.group(cell // self.each), cell % self.each) for cell in range(self.cells)]

    @property
    def count(self) -> int:
        """The number of groups."""
        return -(-self.cells // self.each)

    def commits(self, first: int, count: int, stride: int = 1, cells: int | None = None) -> Records:
        """Yield `count` commits from number `first` on; from one to the next, the cell advances by `stride`.

        `cells`: only the first so many.
        """
        now, homes, keys = int(time.time() * 1000), self._homes, self._keys
        for number in range(first, first + count):
            cell = number * stride % (cells or self.cells)
            yield homes[cell // self.each], keys[cell], _value(number, now)

    def members(self, first: int, count: int, cells: int | None = None) -> Records:
        """Yield `count` group records from number `first` on: each as after a rebalance, with assigned partitions.

        `cells`: only of the groups of the first so many.
        """
        for number in range(first, first + count):
            group = self.group(number % -(-(cells or self.cells) // self.each))
            yield partition_for(group, OFFSETS_PARTITIONS), *group_record(group, generation=number)

    def log(self, commits: int, first: int = 0) -> Records:
        """Yield `commits` commits from number `first` on, with one group record before each 3,000 of them."""
        for at in range(first, first + commits, _COMMITS_PER_GROUP_RECORD):
            yield from self.members(at // _COMMITS_PER_GROUP_RECORD, 1)
            yield from self.commits(at, min(_COMMITS_PER_GROUP_RECORD, first + commits - at))

    def one_per_partition(self, count: int) -> list[int]:
        """Return at most `count` cells, each in another offsets partition."""
        found = {home: number * self.each for number, home in enumerate(self._homes)}
        return sorted(found.values())[:count]


def records_in(commits: int) -> int:
    """Return how many records `Groups.log` yields for `commits`."""
    return commits + -(-commits // _COMMITS_PER_GROUP_RECORD)


def write(bootstrap_server: str, records: Iterable[Record]) -> None:
    """Write the records, with the only client ID that brokers let write to the topic."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_server,
            "client.id": "__admin_client",
            "linger.ms": 50,
            "batch.num.messages": 50_000,
            "queue.buffering.max.messages": 500_000,
        }
    )
    for number, (partition, key, value) in enumerate(records):
        while True:
            try:
                producer.produce(TOPIC, key=key, value=value, partition=partition)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("the broker did not take all records within two minutes")


@cache
def _names_in(partition: int, count: int) -> list[str]:
    """Return names of groups that belong to one offsets partition."""
    names = list[str]()
    number = 0
    while len(names) < count:
        if partition_for(f"bench-{number}", OFFSETS_PARTITIONS) == partition:
            names.append(f"bench-{number}")
        number += 1
    return names


def _key(group_id: str, partition: int) -> bytes:
    group, topic = group_id.encode(), CLIENT_TOPIC.encode()
    return struct.pack(f">hh{len(group)}sh{len(topic)}si", 1, len(group), group, len(topic), topic, partition)


def _value(number: int, time_ms: int) -> bytes:
    return struct.pack(">hqiBqB", 4, number, 7, 1, time_ms + number, 0)  # no metadata, no tags


def group_record(group_id: str, generation: int, members: int = _MEMBERS) -> tuple[bytes, bytes]:
    """Return key and value of a classic group after a rebalance: a hundred partitions, or ten for each member."""
    of_group = [_member(f"consumer-{number}-of-{group_id}", number, generation, members) for number in range(members)]
    data = {
        "protocolType": "consumer",
        "generation": generation,
        "protocol": "range",
        "leader": of_group[0]["memberId"],
    }
    state = {"currentStateTimestamp": int(time.time() * 1000), "members": of_group}
    key, value = encode_record({"type": 2, "data": {"group": group_id}}, {"version": 3, "data": data | state})
    if key is None or value is None:
        raise ValueError("a group record has a key and a value")
    return key, value


def _member(member_id: str, number: int, generation: int, members: int) -> dict[str, object]:
    share = range((number + generation) % members, max(_PARTITIONS_PER_GROUP, 10 * members), members)
    subscription = {"topics": [CLIENT_TOPIC], "userData": None}
    assignment = {"assignedPartitions": [{"topic": CLIENT_TOPIC, "partitions": list(share)}], "userData": None}
    return {
        "memberId": member_id,
        "groupInstanceId": None,
        "clientId": "consumer",
        "clientHost": "/127.0.0.1",
        "rebalanceTimeout": 300_000,
        "sessionTimeout": 45_000,
        "subscription": base64.b64encode(encode_subscription(subscription, 0)).decode(),
        "assignment": base64.b64encode(encode_assignment(assignment, 0)).decode(),
    }
