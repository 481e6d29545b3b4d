"""Check that the user may see the requested groups and topics. Without this, an empty answer proves nothing.

A cluster silently omits from its lists what a user may not DESCRIBE: groups, topics, a group's offsets. But a request
for one name returns an error if the right is missing, even if that name does not exist.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import uuid4

from confluent_kafka.admin import AclOperation

from offsetstream.cluster.client import Cluster
from offsetstream.cluster.rights import (
    ALL_GROUPS,
    ALL_TOPICS,
    GROUP_PREFIX,
    OFFSETS_TOPIC,
    OWN_GROUPS,
    READ_OFFSETS,
    Right,
    describe_each,
)
from offsetstream.errors import NoOffsetsTopicError


def readable_partitions(cluster: Cluster) -> list[int]:
    """Return the partitions of the offsets topic, if Spark's consumers may read it as this user.

    Raises NoOffsetsTopicError, and UnauthorisedError at once, where Spark would need many seconds.
    """
    found, hidden = cluster.describe_topics([OFFSETS_TOPIC], operations=True)
    if hidden:
        raise cluster.lacks([READ_OFFSETS])
    if not found:
        raise NoOffsetsTopicError(f"topic {OFFSETS_TOPIC} does not exist on {cluster.bootstrap_server}")
    topic = found[OFFSETS_TOPIC]
    operations = topic.authorized_operations
    missing = [READ_OFFSETS] if operations and AclOperation.READ not in operations else []
    if cluster.hidden_groups([f"{GROUP_PREFIX}-{uuid4()}"]):
        missing.append(OWN_GROUPS)
    if missing:
        raise cluster.lacks(missing)
    return sorted(partition.id for partition in topic.partitions)


def require_to_read(cluster: Cluster, topics: Collection[str]) -> None:
    """Raise UnauthorisedError unless the user may READ the topics. Ignores topics that do not exist.

    Brokers before Kafka 2.3 do not return rights; they refuse the later request.
    """
    found, hidden = cluster.describe_topics(topics, operations=True)
    refused = [
        name
        for name, topic in found.items()
        if topic.authorized_operations and AclOperation.READ not in topic.authorized_operations
    ]
    missing = sorted({*hidden, *refused})
    if missing:
        raise cluster.lacks([Right("READ", "topic", name) for name in missing])


def require_to_see_topics_of_groups(cluster: Cluster, topics: Collection[str]) -> None:
    """Raise UnauthorisedError unless the user may READ these topics (none: may see all topics).

    Brokers silently omit a group's offsets for topics that the user may not see.
    """
    if topics:
        require_to_read(cluster, topics)
    elif not sees_all_topics(cluster):
        raise cluster.lacks([ALL_TOPICS])


def sees_all_topics(cluster: Cluster) -> bool:
    """Return whether the user may see every topic, except those that an ACL denies, by a request for a random name."""
    return not cluster.hidden_topics([uuid4().hex])


def require_to_see_everything(cluster: Cluster) -> None:
    """Raise UnauthorisedError unless the user may see every group and topic, except those that an ACL denies."""
    missing = [] if sees_all_topics(cluster) else [ALL_TOPICS]
    missing += [ALL_GROUPS] if cluster.hidden_groups([uuid4().hex]) else []
    if missing:
        raise cluster.lacks(missing)


def require_to_see(cluster: Cluster, topics: Collection[str], groups: Collection[str]) -> None:
    """Raise UnauthorisedError if one of these topics and groups is hidden from the user."""
    missing = describe_each("topic", cluster.hidden_topics(topics))
    missing += describe_each("group", cluster.hidden_groups(groups))
    if missing:
        raise cluster.lacks(missing)
