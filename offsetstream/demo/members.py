"""Groups with members: consumers that poll in threads of their own and stay in their groups until they are closed."""

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

from offsetstream.cluster.consumers import close
from offsetstream.demo.topics import end_offsets
from offsetstream.embedded.clients import QUIET
from offsetstream.errors import ClusterError

_POLL_SECONDS = 0.2
_BATCH = 500
_SETTLE_SECONDS = 120.0
_LOOK_SECONDS = 0.2
_TIMEOUT = 30.0


@dataclass(frozen=True)
class GroupPlan:
    """A group with members: topics (or a regex that begins with ^), how many members it starts with, settings.

    `static` gives each member a group.instance.id.
    """

    group_id: str
    topics: Sequence[str]
    members: int
    settings: Mapping[str, str] = field(default_factory=dict)
    static: bool = False

    @property
    def is_kip_848(self) -> bool:
        """Return whether the members speak the new group protocol."""
        return self.settings.get("group.protocol") == "consumer"

    def reads(self, topic: str) -> bool:
        """Return whether the members subscribe to the topic."""
        return any(re.match(name, topic) if name.startswith("^") else name == topic for name in self.topics)


class LiveGroups:
    """The members of each group by its id."""

    def __init__(self, bootstrap_server: str, admin: AdminClient) -> None:
        self._bootstrap_server = bootstrap_server
        self._admin = admin
        self._members: dict[str, list[Member]] = {}
        self._joined: Counter[str] = Counter()  # numbers the members of a group over its whole life

    def ids(self) -> list[str]:
        """Return the groups that have members now."""
        return sorted(self._members)

    def members(self, group_id: str) -> Sequence["Member"]:
        """Return the members of a group, the one that joined first before the others."""
        return self._members[group_id]

    def join(self, plan: GroupPlan, members: int = 1) -> None:
        """Start new members of a group."""
        for _ in range(members):
            self._joined[plan.group_id] += 1
            member = Member(self._bootstrap_server, plan, self._joined[plan.group_id])
            self._members.setdefault(plan.group_id, []).append(member)

    def leave(self, group_id: str) -> None:
        """Let the member of the group that joined first leave, and wait until it has."""
        leaver = self._members[group_id].pop(0)
        leaver.leave()
        leaver.join()
        if not self._members[group_id]:
            del self._members[group_id]

    def settle(self) -> None:
        """Wait until each group is Stable with exactly these members, and has committed all that is in its topics now.

        Raises ClusterError after two minutes.
        """
        ends = end_offsets(self._admin)
        waiting = set(self._members)

        def is_at_rest() -> bool:
            waiting.difference_update(
                [group for group in waiting if _is_settled(self._admin, self._members[group], ends)]
            )
            return not waiting

        await_(is_at_rest, lambda: f"The demo's groups did not come to rest: {', '.join(sorted(waiting))}")

    def close(self) -> None:
        """Let all members leave, side by side, and wait for their threads."""
        everyone = [member for members in self._members.values() for member in members]
        for member in everyone:
            member.leave()
        for member in everyone:
            member.join()
        self._members.clear()


class Member:
    """A consumer in a thread: it reads, and commits what it read with a note and the leader epoch.

    `seconds_per_record` makes it slow. With `retries_unreadable` it reads a record that is no JSON again and again,
    as a consumer without a place for bad records does; else it skips it.
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
        self._thread = threading.Thread(target=self._live, name=self.client_id, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Ask the member to leave its group; returns at once."""
        self._leaving.set()

    def join(self) -> None:
        """Wait until it has left. A static member's place is kept by the broker until its session ends."""
        self._thread.join()

    def _live(self) -> None:
        try:
            self._consumer.subscribe(
                list(self.plan.topics), on_assign=self._own, on_revoke=self._forget, on_lost=self._forget
            )
            while not self._leaving.is_set():
                self._read()
                self._commit()
        finally:
            close(self._consumer)

    def _read(self) -> None:
        stuck = set()
        for message in self._consumer.consume(1 if self.seconds_per_record else _BATCH, _POLL_SECONDS):
            if message.error() is not None:  # it passes: a topic or a coordinator that is not there yet
                continue
            place = (message.topic(), message.partition())
            if place in stuck:
                continue
            if self._leaving.wait(self.seconds_per_record):
                return
            next_offset = message.offset() + 1
            if self.retries_unreadable and not _is_json(message):
                next_offset = message.offset()
                self._consumer.seek(TopicPartition(*place, next_offset))
                stuck.add(place)
            self._pending[place] = TopicPartition(
                *place, next_offset, f"read by {self.client_id}", message.leader_epoch()
            )
            if self.seconds_per_record:
                self._commit()

    def _commit(self) -> None:
        if not self._pending:
            return
        try:
            self._consumer.commit(offsets=list(self._pending.values()), asynchronous=False)
        except KafkaException:
            return  # a rebalance came between: again after the next poll, or the partition's new owner does it
        self._pending.clear()
        self.commits += 1

    def _own(self, _consumer: Consumer, assigned: Sequence[TopicPartition]) -> None:
        if assigned:
            self.owns_partitions.set()

    def _forget(self, _consumer: Consumer, revoked: Sequence[TopicPartition]) -> None:
        for partition in revoked:
            self._pending.pop((partition.topic, partition.partition), None)


def await_(is_so: Callable[[], bool], complaint: Callable[[], str]) -> None:
    """Wait until something is so; raises ClusterError with the complaint after two minutes."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise ClusterError(complaint())
        time.sleep(_LOOK_SECONDS)


def has_kip_848_groups(admin: AdminClient) -> bool:
    """Return whether consumers with `group.protocol=consumer` find a coordinator that speaks with them.

    Asked beforehand, because librdkafka 2.16 says nothing where they do not: it tries again for ever. It needs the
    protocol as released with Kafka 4.0, which is where `inter.broker.protocol.version` went away; the preview of
    3.7 to 3.9 will not do.
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
        # Only now, with a coordinator that answers: asked for offsets where it is away, librdkafka 2.16 ends the
        # process with a segmentation fault (its issue 5040).
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(plan.group_id)])
        found = asked[plan.group_id].result(_TIMEOUT).topic_partitions
    except KafkaException:
        return False  # its coordinator is not there yet, or moves
    committed = {(place.topic, place.partition): place.offset for place in found}
    return all(committed.get(place, 0) >= end for place, end in ends.items() if plan.reads(place[0]))
