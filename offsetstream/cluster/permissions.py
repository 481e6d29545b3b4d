"""Whether the user may see what is asked for: an empty answer of a cluster is believed only where this was checked.

A cluster leaves out of its lists what a user may not DESCRIBE, without an error (groups, topics, a group's offsets).
Asked for one by its name, existing or not, it says whether the right is there.
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

    Raises UnauthorisedError, in a moment where Spark would need many seconds; NoOffsetsTopicError.
    """
    found, hidden = cluster.describe_topics([OFFSETS_TOPIC], operations=True)
    if hidden:
        raise cluster.lacks([READ_OFFSETS])
    if not found:
        raise NoOffsetsTopicError(f"the topic {OFFSETS_TOPIC} does not exist on {cluster.bootstrap_server}")
    topic = found[OFFSETS_TOPIC]
    operations = topic.authorized_operations
    lacking = [READ_OFFSETS] if operations and AclOperation.READ not in operations else []
    if cluster.hidden_groups([f"{GROUP_PREFIX}-{uuid4()}"]):
        lacking.append(OWN_GROUPS)
    if lacking:
        raise cluster.lacks(lacking)
    return sorted(partition.id for partition in topic.partitions)


def require_to_read(cluster: Cluster, topics: Collection[str]) -> None:
    """Raise UnauthorisedError unless the user may READ the topics; of one that does not exist nothing is said.

    Brokers before Kafka 2.3 do not tell, and refuse later.
    """
    found, hidden = cluster.describe_topics(topics, operations=True)
    refused = [
        name
        for name, topic in found.items()
        if topic.authorized_operations and AclOperation.READ not in topic.authorized_operations
    ]
    lacking = sorted({*hidden, *refused})
    if lacking:
        raise cluster.lacks([Right("READ", "topic", name) for name in lacking])


def require_to_see_topics_of_groups(cluster: Cluster, topics: Collection[str]) -> None:
    """Raise UnauthorisedError unless the user may READ these topics, or see all of them where none is named.

    Of the offsets of a group brokers leave out those of topics that the user may not see, without a word.
    """
    if topics:
        require_to_read(cluster, topics)
    elif not sees_all_topics(cluster):
        raise cluster.lacks([ALL_TOPICS])


def sees_all_topics(cluster: Cluster) -> bool:
    """Return whether the user may see every topic (but those that an ACL denies): one of any name."""
    return not cluster.hidden_topics([uuid4().hex])


def require_to_see_everything(cluster: Cluster) -> None:
    """Raise UnauthorisedError unless the user may see every group and topic (but those that an ACL denies)."""
    lacking = [] if sees_all_topics(cluster) else [ALL_TOPICS]
    lacking += [ALL_GROUPS] if cluster.hidden_groups([uuid4().hex]) else []
    if lacking:
        raise cluster.lacks(lacking)


def require_to_see(cluster: Cluster, topics: Collection[str], groups: Collection[str]) -> None:
    """Raise UnauthorisedError if one of these, which an answer leaves out, is hidden from the user."""
    lacking = describe_each("topic", cluster.hidden_topics(topics))
    lacking += describe_each("group", cluster.hidden_groups(groups))
    if lacking:
        raise cluster.lacks(lacking)
