"""The rights that each command needs on the cluster, as data for docs/reference/rights.md and the tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from offsetstream.errors import shortened

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
GROUP_PREFIX = "offsetstream"  # of the group ids of Spark's consumers, which look up a coordinator but join no group
ANY = "*"


@dataclass(frozen=True)
class Right:
    """An operation on a resource, in the terms of kafka-acls. `without` says what the command lacks without it."""

    operation: str
    resource: str  # topic, group, transactional_id or cluster
    name: str = "kafka-cluster"
    is_prefix: bool = False
    without: str | None = None

    def __str__(self) -> str:
        kind = self.resource.replace("_", " ")
        if self.resource == "cluster":
            return f"{self.operation} on the cluster"
        if self.name == ANY:
            return f"{self.operation} on all {kind}s (*)"
        if self.is_prefix:
            return f"{self.operation} on the {kind}s with the prefix {self.name}"
        return f"{self.operation} on the {kind} {self.name}"


def describe_each(resource: str, names: Iterable[str]) -> list[Right]:
    """Return DESCRIBE on each of the named topics or groups."""
    return [Right("DESCRIBE", resource, name) for name in sorted(names)]


def in_words(rights: list[Right]) -> str:
    """Return the rights as text: up to three, and the number of the others."""
    return shortened(list(map(str, rights)))


READ_OFFSETS = Right("READ", "topic", OFFSETS_TOPIC)
OWN_GROUPS = Right("DESCRIBE", "group", GROUP_PREFIX, is_prefix=True)
ALL_GROUPS = Right("DESCRIBE", "group", ANY)
ALL_TOPICS = Right("DESCRIBE", "topic", ANY)
TOPIC_SETTINGS = Right(
    "DESCRIBE_CONFIGS", "topic", OFFSETS_TOPIC, without="its delete.retention.ms is assumed to be 24 hours"
)
BROKER_SETTINGS = Right(
    "DESCRIBE_CONFIGS",
    "cluster",
    without="the coordinator kind is new or that of --coordinator; the retention of offsets is unknown",
)
TOPIC_NAMES = Right(
    "DESCRIBE",
    "topic",
    ANY,
    without="topics that the user may not see have no end offsets; newer group types show their ids, not names",
)
TRANSACTIONS = Right(
    "DESCRIBE", "transactional_id", ANY, without="the ids, states, starts and timeouts of open transactions are unknown"
)
TRANSACTION_COORDINATORS = Right(
    "DESCRIBE", "topic", TRANSACTION_STATE, without="it is unknown whether a transaction is hanging"
)
READ_ALL_TOPICS = Right(
    "READ",
    "topic",
    ANY,
    without="it is unknown whether a message waits or only a marker, and which transaction blocks a log",
)
TRANSACTION_IDS = Right(
    "DESCRIBE", "transactional_id", ANY, without="it is unknown which open transaction blocks a log"
)
DESCRIBE_ALL_TOPICS = Right("DESCRIBE", "topic", ANY, without="topics that the user may not see are omitted")
READ_TOPIC = Right("READ", "topic", "<topic>")
OF_GROUP = Right("DESCRIBE", "group", "<group>")
COMMIT = Right("READ", "group", "<group>")
DELETE = Right("DELETE", "group", "<group>")
READ_TOPIC_OF_GROUP = Right("READ", "topic", "<topic of the group>")
# Names in angle brackets stand for the requested ones. Commands that are not here do not use the cluster.
COMMANDS: dict[str, tuple[Right, ...]] = {
    "run": (READ_OFFSETS, OWN_GROUPS, TOPIC_SETTINGS, BROKER_SETTINGS, TOPIC_NAMES, READ_ALL_TOPICS, TRANSACTION_IDS),
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
    "topics describe": (DESCRIBE_ALL_TOPICS,),
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
