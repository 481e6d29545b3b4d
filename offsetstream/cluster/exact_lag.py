"""Measure lag exactly: fetch the record at each committed offset, whose timestamp gives the time lag."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from py4j.protocol import Py4JJavaError

from offsetstream.cluster.committed import Place
from offsetstream.cluster.coordinators import NO_COORDINATOR
from offsetstream.cluster.java_client import LIMITED_RETRIES, NO_RIGHT_TO_GROUP, error_name, java_admin
from offsetstream.cluster.java_offsets import fetch_by_java
from offsetstream.cluster.metadata import MetadataCache
from offsetstream.cluster.offsets import require_text
from offsetstream.cluster.permissions import require_to_read, require_to_see_topics_of_groups
from offsetstream.cluster.reading import Reading, ends_of, first_at_each
from offsetstream.cluster.records_at import IsolationLevel
from offsetstream.cluster.rights import OFFSETS_TOPIC, describe_each
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.errors import ClusterError

# By group: its committed offsets (None: a negative one was committed), or Kafka's name of its coordinator's error.
Committed: TypeAlias = dict[str, dict[Place, int | None] | str]


@dataclass(frozen=True)
class ExactLag:
    """A partition of a group, and the first record at its committed offset or later (at most one)."""

    group_id: str
    topic: str
    partition: int
    reading: Reading


def committed_of(
    cluster: MetadataCache,
    properties: Mapping[str, str],
    group_ids: Collection[str],
    topics: Collection[str],
    timeout: float,
) -> Committed:
    """Return the committed offsets of the groups for these topics (none: all), from their coordinators.

    Waits up to `timeout` seconds for each coordinator. Raises what `Connection` and `java_admin` raise, and UsageError
    for an invalid group id.
    """
    for group_id in group_ids:
        require_text("group id", group_id)
    require_to_see_topics_of_groups(cluster, topics)
    found: Committed = {}
    with java_admin(cluster.bootstrap_server, {**properties, **LIMITED_RETRIES}) as (jvm, client):
        for group_id in group_ids:
            try:
                offsets = fetch_by_java(jvm, client, group_id, None, timeout, require_stable=False)
            except Py4JJavaError as error:
                if (name := error_name(jvm, error)) == NO_RIGHT_TO_GROUP:
                    raise cluster.lacks(describe_each("group", [group_id])) from error
                found[group_id] = _coordinator_error(cluster, group_id, name)
            else:
                found[group_id] = {
                    place: each.offset for place, each in offsets.items() if not topics or place[0] in topics
                }
    return found


def exact_lags(
    cluster: MetadataCache,
    properties: Mapping[str, str],
    committed: Mapping[str, Mapping[Place, int]],
    *,
    isolation_level: IsolationLevel,
    timeout: float,
) -> list[ExactLag]:
    """Return the next record of each group and partition, within `timeout` seconds for all.

    Fetches each pair of a partition and an offset once, even if several groups have it. Needs READ on the topics.
    Raises what `Connection` raises.
    """
    deadline = time.monotonic() + timeout
    places = {place for offsets in committed.values() for place in offsets}
    require_to_read(cluster, {topic for topic, _ in places})
    ends = ends_of(cluster, places)
    wanted = {position for offsets in committed.values() for position in offsets.items()}
    found = first_at_each(cluster, properties, wanted, ends=ends, isolation_level=isolation_level, deadline=deadline)
    return [
        ExactLag(group_id, *place, found[place, offset])
        for group_id, offsets in committed.items()
        for place, offset in offsets.items()
    ]


def _coordinator_error(cluster: MetadataCache, group_id: str, error: str) -> str:
    """Return Kafka's name of the error. Kafka's client reports a missing coordinator only as a timeout."""
    try:
        leaders = cluster.leaders(OFFSETS_TOPIC)
    except ClusterError:
        return error
    return NO_COORDINATOR if leaders[partition_for(group_id, len(leaders))] is None else error
