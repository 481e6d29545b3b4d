"""The actions of the incident's script. Each one returns once the cluster confirms its effect."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    NewPartitions,
    NewTopic,
)

from offsetstream.embedded.clients import QUIET
from offsetstream.embedded.kafka import EmbeddedKafka
from tests.kafka.incident.book import Book, Cell, Deletion, Finding, Passing, Place
from tests.kafka.incident.observer import Observer
from tests.kafka.java_clients import JavaClients, Member
from tests.kafka.jobs import JobRunner

_TIMEOUT = 60.0
_NO_MEMBERS: dict[str, Member] = {}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Actions(Observer):
    """Actions on topics, groups and commits, by real clients. Each is recorded in the book."""

    def __init__(self, kafka: EmbeddedKafka, clients: JavaClients, runner: JobRunner, book: Book) -> None:
        super().__init__(kafka, clients, runner, book)
        self.members: dict[str, dict[str, Member]] = {}

    # Topics

    def create_topic(self, topic: str, partitions: int, records: int) -> None:
        """Create a topic with `records` records in each partition."""
        self._topics.create_topics([NewTopic(topic, partitions)])[topic].result(_TIMEOUT)
        self.await_(lambda: topic in self.admin.topic_names().values(), f"no topic {topic}")
        self.book.topic_names |= self.admin.topic_names()
        self.produce(topic, dict.fromkeys(range(partitions), records))
        # Without a commit the job does not sample the topic, so it never saw it empty.
        self.book.ends |= {(topic, number): [records] for number in range(partitions)}

    def produce(self, topic: str, records: Mapping[int, int]) -> None:
        """Append records: their number by partition."""
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_server, "acks": "all"}, logger=QUIET)
        delivered: list[Any] = []
        for partition, count in records.items():
            for _ in range(count):
                producer.produce(topic, b"x", partition=partition, on_delivery=lambda error, _: delivered.append(error))
        producer.flush(_TIMEOUT)
        assert delivered == [None] * sum(records.values())
        for partition, count in records.items():
            ends = self.book.ends.setdefault((topic, partition), [0])
            ends.append(ends[-1] + count)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic that the job knows; wait until Admin has no offset in it and the job knows of it."""
        topic_id = self._id_of(topic)
        self.await_job(lambda: topic_id in dict(self.runner.rows("topics", "topic_id", "deleted_at")))
        self._topics.delete_topics([topic])[topic].result(_TIMEOUT)
        started_ms = now_ms()
        cells = [cell for cell in self.book.current_offsets() if cell.topic == topic]
        self.await_(lambda: not [c for c in self.offsets({c.group for c in cells}) if c.topic == topic], topic)
        self.await_job(lambda: self._is_deleted(topic_id))
        self._record_deletions(cells, "topic deleted", started_ms)

    def add_partitions(self, topic: str, partitions: int) -> None:
        self._topics.create_partitions([NewPartitions(topic, partitions)])[topic].result(_TIMEOUT)
        self.await_(lambda: len(self.cluster.topic_partitions(topic)) == partitions, f"{topic} has not grown")

    def delete_records(self, topic: str, partition: int, offset: int) -> None:
        """Delete the records before an offset; wait until the job has sampled the new log start."""
        place = TopicPartition(topic, partition, offset)
        self._topics.delete_records([place])[place].result(_TIMEOUT)
        columns = ("topic", "partition", "log_start_offset")
        self.await_job(lambda: (topic, partition, offset) in self.runner.rows("topic_partitions", *columns))
        self.await_sampled([(topic, partition)])

    # Groups

    def join(self, group: str, client: str, *topics: str, **properties: Any) -> None:
        """Start a member; wait until it has its partitions."""
        member = self.clients.consumer(group, *topics, client_id=client, **properties)
        self.add_member(group, client, member)

    def add_member(self, group: str, client: str, member: Member) -> None:
        self.members.setdefault(group, {})[client] = member
        self.settle(group)
        self.book.passings.append(Passing(group, client, "joined"))

    def leave(self, group: str, client: str) -> None:
        """Close a member; wait until the group is stable again or empty."""
        self.members[group].pop(client).leave()
        self.settle(group)
        self.note_left(group, client)

    def note_left(self, group: str, client: str) -> None:
        self.book.passings.append(Passing(group, client, "left"))

    def settle(self, group: str) -> None:
        """Wait until the group has exactly its members and is stable (or empty)."""
        clients = sorted(self.members.get(group, _NO_MEMBERS))

        def is_settled() -> bool:
            for member in self.members.get(group, _NO_MEMBERS).values():
                member.check()
            found = self.admin.answers({group})
            states = [row["state"] for row in found.groups]
            return states == (["Stable"] if clients else ["Empty"]) and clients == sorted(
                row["client_id"] for row in found.members
            )

        self.await_(is_settled, f"{group} has not come to rest with {clients}")

    # Commits

    def commit(self, group: str, offsets: Mapping[Place, int], finding: str | None = None) -> None:
        """Commit by the members that own the partitions, or by a simple consumer if the group has no members."""
        started_ms = now_ms()
        if self.members.get(group):
            for client, places in self.assigned(group).items():
                offsets_of_client = {place: offsets[place] for place in places if place in offsets}
                if offsets_of_client:
                    self.members[group][client].commit(offsets_of_client)
        else:
            self.clients.commit(group, offsets)
        self.await_committed(group, offsets, started_ms, finding)

    def await_committed(
        self,
        group: str,
        offsets: Mapping[Place, int],
        started_ms: int,
        finding: str | None = None,
        moved_to: str | None = None,
    ) -> None:
        """Wait until Admin returns these offsets; record them."""
        expected = {Cell(group, *place): offset for place, offset in offsets.items()}
        self.await_(lambda: self.offsets([group]).items() >= expected.items(), f"{group} never committed {offsets}")
        for cell, offset in expected.items():
            if finding is not None:
                previous = [c.offset for c in self.book.commits if c.cell == cell and c.offset is not None][-1]
                self.book.findings.append(Finding(cell, previous, offset, finding, moved_to))
            self.book.add_commit(cell, offset, started_ms, now_ms())

    def reset(
        self, group: str, topic: str, options: list[str], expected: Mapping[int, int], **details: str | None
    ) -> None:
        """Reset an empty group's offsets by Kafka's own tool."""
        started_ms = now_ms()
        self.tool(group, "--reset-offsets", "--topic", topic, *options, "--execute")
        self.await_committed(
            group, {(topic, number): offset for number, offset in expected.items()}, started_ms, **details
        )

    def delete_offsets(self, group: str, places: Iterable[Place], *, by_tool: bool) -> None:
        """Delete offsets of a group, by Kafka's own tool or by Admin."""
        started_ms, places = now_ms(), list(places)
        for topic, number in places if by_tool else ():
            self.tool(group, "--delete-offsets", "--topic", f"{topic}:{number}")
        if not by_tool:
            self.admin.delete_offsets(group, places)
        cells = [Cell(group, *place) for place in places]
        self.await_(lambda: not self.offsets([group]).keys() & set(cells), f"{group} keeps {places}")
        self._record_deletions(cells, "offsets deleted", started_ms)

    def delete_group(self, group: str) -> None:
        started_ms = now_ms()
        self.admin.delete_groups([group])
        self.await_(lambda: group not in self.group_ids(), f"{group} is still there")
        self._record_deletions(
            [cell for cell in self.book.current_offsets() if cell.group == group], "group deleted", started_ms
        )

    def await_expiry(self, group: str) -> None:
        """Wait until the coordinator has expired all offsets of a group."""
        cells = [cell for cell in self.book.current_offsets() if cell.group == group]
        started_ms = now_ms()
        self.await_(lambda: group not in self.group_ids() or not self.offsets([group]), f"{group} does not expire")
        self._record_deletions(cells, "expired", started_ms - 60_000)

    def _record_deletions(self, cells: Iterable[Cell], reason: str, started_ms: int) -> None:
        offsets_before = self.book.current_offsets()
        for cell in cells:
            self.book.deletions.append(Deletion(cell, offsets_before[cell], reason))
            self.book.add_commit(cell, None, started_ms, now_ms())
