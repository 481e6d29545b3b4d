"""Groups with members: each member is a consumer that polls in its own thread until it is closed."""

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from offsetstream.cluster.records import close
from offsetstream.demo.topics import end_offsets
from offsetstream.embedded.clients import QUIET
from offsetstream.errors import ClusterError

_POLL_SECONDS = 0.2
_BATCH = 500
_SETTLE_SECONDS = 120.0
_CHECK_SECONDS = 0.2
_TIMEOUT = 30.0


@dataclass(frozen=True)
class GroupPlan:
    """A group with members: its topics, its number of members at the start, and consumer settings.

    A topic that starts with ^ is a regular expression. `static` gives each member a group.instance.id.
    """

    group_id: str
    topics: Sequence[str]
    members: int
    settings: Mapping[str, str] = field(default_factory=dict)
    static: bool = False

    @property
    def is_kip_848(self) -> bool:
        """Return whether the members use the new group protocol."""
        return self.settings.get("group.protocol") == "consumer"

    def reads(self, topic: str) -> bool:
        """Return whether the members subscribe to the topic."""
        return any(re.match(name, topic) if name.startswith("^") else name == topic for name in self.topics)


class LiveGroups:
    """The running members of several groups."""

    def __init__(self, bootstrap_server: str, admin: AdminClient) -> None:
        self._bootstrap_server = bootstrap_server
        self._admin = admin
        self._members: dict[str, list[Member]] = {}
        self._joined: Counter[str] = Counter()  # members that a group ever had: numbers the next one

    def ids(self) -> list[str]:
        """Return the groups that have members now."""
        return sorted(self._members)

    def members(self, group_id: str) -> Sequence["Member"]:
        """Return the members of a group, in the order in which they joined."""
        return self._members[group_id]

    def join(self, plan: GroupPlan, members: int = 1) -> None:
        """Start new members of a group."""
        for _ in range(members):
            self._joined[plan.group_id] += 1
            member = Member(self._bootstrap_server, plan, self._joined[plan.group_id])
            self._members.setdefault(plan.group_id, []).append(member)

    def leave(self, group_id: str) -> None:
        """Let the oldest member of the group leave, and wait until it has left."""
        leaver = self._members[group_id].pop(0)
        leaver.leave()
        leaver.join()
        if not self._members[group_id]:
            del self._members[group_id]

    def settle(self) -> None:
        """Wait until each group is Stable with exactly these members and has committed the current end offsets.

        Raises ClusterError after two minutes.
        """
        ends = end_offsets(self._admin)
        waiting = set(self._members)

        def are_settled() -> bool:
            waiting.difference_update(
                [group for group in waiting if _is_settled(self._admin, self._members[group], ends)]
            )
            return not waiting

        await_(
            are_settled,
            lambda: f"These groups have not become stable: {', '.join(sorted(waiting))}",
        )

    def close(self) -> None:
        """Let all members leave at the same time, and wait for their threads."""
        all_members = [member for members in self._members.values() for member in members]
        for member in all_members:
            member.leave()
        for member in all_members:
            member.join()
        self._members.clear()


class Member:
    """A consumer in a thread. It commits what it has read, with a note and the leader epoch.

    `seconds_per_record` makes it slow. With `retries_unreadable`, it reads a record that is not JSON again and again,
    like a consumer without a dead letter queue. Otherwise it skips such a record.
    """

    def __init__(self, bootstrap_server: str, plan: GroupPlan, number: int) -> None:
        self.plan = plan
        self.client_id = f"{plan.group_id}-{number}"
        self.seconds_per_record = 0.0
        self.retries_unreadable = False
        self.commits = 0
        self.owns_partitions = threading.Event()
        self._pending: dict[tuple[str, int], TopicPartition] = {}
        self._leaving = threading.Event()
        settings: dict[str, str | bool | int] = {
            "bootstrap.servers": bootstrap_server,
            "group.id": plan.group_id,
            "client.id": self.client_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **plan.settings,
        }
        if plan.static:
            settings["group.instance.id"] = f"{self.client_id}-static"
        self._consumer = Consumer(settings, logger=QUIET)
        self._thread = threading.Thread(target=self._run, name=self.client_id, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Ask the member to leave its group, without waiting for it."""
        self._leaving.set()

    def join(self) -> None:
        """Wait until it has left. The broker keeps a static member in the group until its session times out."""
        self._thread.join()

    def _run(self) -> None:
        try:
            self._consumer.subscribe(
                list(self.plan.topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
            )
            while not self._leaving.is_set():
                self._read()
                self._commit()
        finally:
            close(self._consumer)

    def _read(self) -> None:
        stuck = set()
        for message in self._consumer.consume(1 if self.seconds_per_record else _BATCH, _POLL_SECONDS):
            if message.error() is not None:  # temporary: the topic or the coordinator does not exist yet
                continue
            partition = (message.topic(), message.partition())
            if partition in stuck:
                continue
            if self._leaving.wait(self.seconds_per_record):
                return
            next_offset = message.offset() + 1
            if self.retries_unreadable and not _is_json(message):
                next_offset = message.offset()
                self._consumer.seek(TopicPartition(*partition, next_offset))
                stuck.add(partition)
            self._pending[partition] = TopicPartition(
                *partition, next_offset, f"read by {self.client_id}", message.leader_epoch()
            )
            if self.seconds_per_record:
                self._commit()

    def _commit(self) -> None:
        if not self._pending:
            return
        try:
            self._consumer.commit(offsets=list(self._pending.values()), asynchronous=False)
        except KafkaException:
            return  # a rebalance: commit after the next poll, or the new owner commits
        self._pending.clear()
        self.commits += 1

    def _on_assign(self, _consumer: Consumer, assigned: Sequence[TopicPartition]) -> None:
        if assigned:
            self.owns_partitions.set()

    def _on_revoke(self, _consumer: Consumer, revoked: Sequence[TopicPartition]) -> None:
        for partition in revoked:
            self._pending.pop((partition.topic, partition.partition), None)


def await_(condition: Callable[[], bool], problem: Callable[[], str]) -> None:
    """Wait until the condition holds. Raises ClusterError with the problem's text after two minutes."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise ClusterError(problem())
        time.sleep(_CHECK_SECONDS)


def has_kip_848_groups(admin: AdminClient) -> bool:
    """Return whether the broker supports consumers with `group.protocol=consumer`.

    Call it before such a consumer starts: without support, librdkafka 2.16 retries forever and reports nothing.
    librdkafka needs the protocol as released with Kafka 4.0; the preview in 3.7 to 3.9 is not enough. Kafka 4.0 is
    also the release that removed `inter.broker.protocol.version`.
    """
    broker_id = next(iter(admin.list_topics(timeout=_TIMEOUT).brokers))
    resource = ConfigResource(ResourceType.BROKER, str(broker_id))
    configs = admin.describe_configs([resource])[resource].result(_TIMEOUT)
    protocols = configs.get("group.coordinator.rebalance.protocols")
    return (
        protocols is not None
        and "consumer" in protocols.value.split(",")
        and "inter.broker.protocol.version" not in configs
    )


def _is_json(message: Message) -> bool:
    try:
        json.loads(message.value() or b"")
    except ValueError:
        return False
    return True


def _is_settled(admin: AdminClient, members: Sequence[Member], ends: Mapping[tuple[str, int], int]) -> bool:
    plan = members[0].plan
    try:
        description = admin.describe_consumer_groups([plan.group_id])[plan.group_id].result(_TIMEOUT)
        in_group = {member.client_id for member in description.members}
        if description.state != ConsumerGroupState.STABLE or in_group != {member.client_id for member in members}:
            return False
        # List offsets only after the coordinator has answered: if it does not, librdkafka 2.16 crashes the process
        # with a segmentation fault (its issue 5040).
        futures = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(plan.group_id)])
        partitions = futures[plan.group_id].result(_TIMEOUT).topic_partitions
    except KafkaException:
        return False  # its coordinator does not exist yet, or is moving
    committed = {(each.topic, each.partition): each.offset for each in partitions}
    return all(committed.get(partition, 0) >= end for partition, end in ends.items() if plan.reads(partition[0]))
