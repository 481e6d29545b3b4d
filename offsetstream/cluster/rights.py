"""The rights that each command needs on the cluster, as data: docs/how-to/security.md shows them; tests grant them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
GROUP_PREFIX = "offsetstream"  # of the groups whose coordinator Spark's consumers look up; they join none
ANY = "*"
_SHOWN = 3


@dataclass(frozen=True)
class Right:
    """An operation on a resource, in the words of kafka-acls; `without` says how a command goes on without it."""

    operation: str
    resource: str  # topic, group, transactional_id or cluster
    name: str = "kafka-cluster"
    is_prefix: bool = False
    without: str | None = None

    def __str__(self) -> str:
        what = self.resource.replace("_", " ")
        if self.resource == "cluster":
            return f"{self.operation} on the cluster"
        if self.name == ANY:
            return f"{self.operation} on all {what}s (*)"
        if self.is_prefix:
            return f"{self.operation} on the {what}s with the prefix {self.name}"
        return f"{self.operation} on the {what} {self.name}"


def describe_each(resource: str, names: Iterable[str]) -> list[Right]:
    """Return DESCRIBE on each of the named topics or groups."""
    return [Right("DESCRIBE", resource, name) for name in sorted(names)]


def in_words(rights: list[Right]) -> str:
    """Return the rights in words, the first few of many."""
    more = f" and {len(rights) - _SHOWN} more" if len(rights) > _SHOWN else ""
    return ", ".join(map(str, rights[:_SHOWN])) + more


READ_OFFSETS = Right("READ", "topic", OFFSETS_TOPIC)
OWN_GROUPS = Right("DESCRIBE", "group", GROUP_PREFIX, is_prefix=True)
ALL_GROUPS = Right("DESCRIBE", "group", ANY)
ALL_TOPICS = Right("DESCRIBE", "topic", ANY)
TOPIC_SETTINGS = Right(
    "DESCRIBE_CONFIGS", "topic", OFFSETS_TOPIC, without="24 hours are taken for its delete.retention.ms"
)
BROKER_SETTINGS = Right(
    "DESCRIBE_CONFIGS",
    "cluster",
    without="--coordinator tells the kind, else new is taken; how long offsets are kept is unknown",
)
TOPIC_NAMES = Right(
    "DESCRIBE",
    "topic",
    ANY,
    without="of topics that it may not see the ends are unknown, and newer group types show their ids",
)
TRANSACTIONS = Right(
    "DESCRIBE", "transactional_id", ANY, without="of open transactions the ids, states, starts and timeouts are unknown"
)
TRANSACTION_COORDINATORS = Right(
    "DESCRIBE", "topic", TRANSACTION_STATE, without="whether a transaction is hanging is unknown"
)
MARKERS_SEEN = Right(
    "READ",
    "topic",
    ANY,
    without="whether one message waits, or only a transaction's marker, is unknown, and which transaction blocks a log",
)
TRANSACTION_IDS = Right(
    "DESCRIBE", "transactional_id", ANY, without="which open transaction blocks a log is unknown"
)
TOPICS_SEEN = Right("DESCRIBE", "topic", ANY, without="topics that it may not see are left out")
READ_TOPIC = Right("READ", "topic", "<topic>")
OF_GROUP = Right("DESCRIBE", "group", "<group>")
COMMIT = Right("READ", "group", "<group>")
DELETE = Right("DELETE", "group", "<group>")
READ_TOPIC_OF_GROUP = Right("READ", "topic", "<topic of the group>")
# Names in angle brackets stand for what is asked for. Commands that are not here ask no cluster.
COMMANDS: dict[str, tuple[Right, ...]] = {
    "run": (READ_OFFSETS, OWN_GROUPS, TOPIC_SETTINGS, BROKER_SETTINGS, TOPIC_NAMES, MARKERS_SEEN, TRANSACTION_IDS),
    "dump --bootstrap-server": (READ_OFFSETS, OWN_GROUPS),
    "verify": (ALL_TOPICS, ALL_GROUPS),
    "verify --history": (READ_OFFSETS, ALL_TOPICS, ALL_GROUPS),
    "coordinator --bootstrap-server": (
        Right("DESCRIBE", "topic", OFFSETS_TOPIC),
        Right("DESCRIBE", "group", "<group>"),
    ),
    "offsets list --live": (ALL_TOPICS, Right("DESCRIBE", "group", "<group>")),
    "partitions --blocked": (READ_OFFSETS, TRANSACTIONS, TRANSACTION_COORDINATORS),
    "partitions --blocked --group": (
        ALL_TOPICS,
        OF_GROUP,
        READ_TOPIC_OF_GROUP,
        TRANSACTIONS,
        TRANSACTION_COORDINATORS,
    ),
    "partitions --blocked --topic": (READ_TOPIC, TRANSACTIONS, TRANSACTION_COORDINATORS),
    "lag --exact": (ALL_TOPICS, OF_GROUP, READ_TOPIC_OF_GROUP),
    "lag --exact --topic": (OF_GROUP, READ_TOPIC),
    "peek --group": (ALL_TOPICS, OF_GROUP, READ_TOPIC_OF_GROUP),
    "peek --topic": (READ_TOPIC,),
    "topics describe": (TOPICS_SEEN,),
    "topics describe --topic": (Right("DESCRIBE", "topic", "<topic>"),),
    "offsets reset --topic": (COMMIT, READ_TOPIC),
    "offsets reset --all-topics": (ALL_TOPICS, COMMIT, READ_TOPIC_OF_GROUP),
    "offsets import": (COMMIT, READ_TOPIC),
    "offsets export --with-times": (READ_TOPIC_OF_GROUP,),
    "offsets undo": (COMMIT, READ_TOPIC),
    "offsets undo (of offsets that were created)": (DELETE, READ_TOPIC),
    "offsets delete": (DELETE, READ_TOPIC),
    "groups delete": (ALL_TOPICS, DELETE),
    "groups describe --offsets --bootstrap-server": (Right("DESCRIBE", "topic", "<topic of the group>"),),
    "groups describe --state --bootstrap-server": (),
}
