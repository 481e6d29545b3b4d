"""Members of groups: consumers that poll in threads of their own and stay in their groups until they are closed."""

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException, TopicPartition

from offsetstream.cluster.consumers import close
from offsetstream.embedded.clients import QUIET

_POLL_SECONDS = 0.2
_BATCH = 500


@dataclass(frozen=True)
class GroupPlan:
    """A group with members: topics (or a regex that begins with ^), how many members it starts with, settings.

    `static` gives each member a group.instance.id; `commits` False leaves what it read uncommitted for ever.
    """

    group_id: str
    topics: Sequence[str]
    members: int
    settings: Mapping[str, str] = field(default_factory=dict)
    static: bool = False
    commits: bool = True

    @property
    def is_kip_848(self) -> bool:
        """Return whether the members speak the new group protocol."""
        return self.settings.get("group.protocol") == "consumer"

    def reads(self, topic: str) -> bool:
        """Return whether the members subscribe to the topic."""
        return any(re.match(name, topic) if name.startswith("^") else name == topic for name in self.topics)


class Member:
    """A consumer in a thread: it reads, and commits what it read with a note and the leader epoch."""

    def __init__(self, bootstrap_server: str, plan: GroupPlan, number: int) -> None:
        self.plan = plan
        self.client_id = f"{plan.group_id}-{number}"
        self._pending: dict[tuple[str, int], TopicPartition] = {}
        self._leaving = threading.Event()
        settings: dict[str, str | bool | int] = {
            "bootstrap.servers": bootstrap_server,
            "group.id": plan.group_id,
            "client.id": self.client_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
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
            self._consumer.subscribe(list(self.plan.topics), on_revoke=self._forget, on_lost=self._forget)
            while not self._leaving.is_set():
                self._read()
                self._commit()
        finally:
            close(self._consumer)

    def _read(self) -> None:
        for message in self._consumer.consume(_BATCH, _POLL_SECONDS):
            if message.error() is None:  # others are passing: a topic or a coordinator that is not there yet
                place = (message.topic(), message.partition())
                self._pending[place] = TopicPartition(
                    *place, message.offset() + 1, f"read by {self.client_id}", message.leader_epoch()
                )

    def _commit(self) -> None:
        if not self._pending or not self.plan.commits:
            return
        try:
            self._consumer.commit(offsets=list(self._pending.values()), asynchronous=False)
        except KafkaException:
            return  # a rebalance came between: again after the next poll, or the partition's new owner does it
        self._pending.clear()

    def _forget(self, _consumer: Consumer, revoked: Sequence[TopicPartition]) -> None:
        for partition in revoked:
            self._pending.pop((partition.topic, partition.partition), None)
