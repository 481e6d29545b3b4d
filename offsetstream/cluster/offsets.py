"""Fetch committed offsets from a group's coordinator, and commit offsets to it.

Requests are retried for `timeout` seconds while the coordinator moves or loads. An error of a single partition is
returned, by Kafka's name. An error of the complete request is raised: UsageError for invalid arguments,
UnauthorisedError for a missing right, UnreachableError if the coordinator does not answer in time,
EnvironmentNotReadyError without Java, ClusterError for everything else.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from py4j.protocol import Py4JJavaError
from tenacity import retry_if_exception, retry_if_result

from offsetstream.cluster.answers import CommittedOffset, Place
from offsetstream.cluster.client import Cluster, require_to_see_topics_of_groups, sees_all_topics
from offsetstream.cluster.connection import COORDINATOR_MOVES, NO_COORDINATOR, TIMEOUT, kafka_name, patience
from offsetstream.cluster.java_client import LIMITED_RETRIES, NO_RIGHT_TO_GROUP, JavaAdmin, java_admin
from offsetstream.cluster.rights import ALL_TOPICS, OFFSETS_TOPIC, Right, describe_each
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.errors import ClusterError, UnreachableError, UsageError

_MIN_SECONDS = 1.0
# By group: its committed offsets (None: a negative one was committed), or Kafka's name of its coordinator's error.
Committed: TypeAlias = dict[str, dict[Place, int | None] | str]


class GroupOffsets(Cluster):
    """A live cluster: fetch and commit the offsets of groups."""

    def fetch(
        self,
        group_id: str,
        partitions: Collection[Place] | None = None,
        *,
        require_stable: bool = False,
        timeout: float = TIMEOUT,
    ) -> dict[Place, CommittedOffset]:
        """Return the committed offsets for the partitions, or for all partitions of the group (OffsetFetch).

        With `require_stable`, a partition with a pending offset of an open transaction has the error
        UNSTABLE_OFFSET_COMMIT (KIP-447). A partition with a negative committed offset has no offset in the result.
        Brokers silently omit topics that the user may not see. So an empty answer raises UnauthorisedError unless the
        user may see all topics. Just after a broker was lost, the new coordinator (4.3.1) answers as of its high
        watermark, so the last commits may be missing.
        """
        require_text("group id", group_id)
        for place in partitions or ():
            _require_place(place)
        if partitions is not None and not partitions:
            return {}
        with self._java_admin(group_id, "DESCRIBE") as admin:
            found = admin.fetch(group_id, partitions, timeout, require_stable=require_stable)
            requested: Collection[Place] | None = partitions
            if partitions is None and require_stable:  # find the partitions that it omitted
                requested = admin.fetch(group_id, None, timeout, require_stable=False)
        missing = [place for place in requested or () if place not in found]
        if not found and partitions is None and not missing and not sees_all_topics(self):
            raise self.lacks([ALL_TOPICS])
        return found | (self._errors_of(group_id, missing, timeout, require_stable=require_stable))

    def commit(
        self, group_id: str, offsets: Mapping[Place, int | CommittedOffset], *, timeout: float = TIMEOUT
    ) -> dict[Place, str | None]:
        """Commit offsets without being a member. Return the error of each partition (None: done).

        A group with members answers UNKNOWN_MEMBER_ID. If an open transaction has a pending offset for a partition,
        that one replaces this commit when the transaction ends. If the answer was lost, you can safely commit again.
        """
        require_text("group id", group_id)
        commits = {place: _to_commit(place, offset) for place, offset in offsets.items()}
        if not commits:
            return {}
        with self._java_admin(group_id, "READ") as admin:
            return admin.commit(group_id, commits, timeout)

    @contextmanager
    def _java_admin(self, group_id: str, operation: str) -> Iterator[JavaAdmin]:
        try:
            with java_admin(self.bootstrap_server, {**self._properties, **LIMITED_RETRIES}) as admin:
                try:
                    yield admin
                except Py4JJavaError as error:
                    if admin.error_name(error) != NO_RIGHT_TO_GROUP:
                        raise
                    raise self.lacks([Right(operation, "group", group_id)]) from error
        except UnreachableError as error:
            number = _leaderless(self, group_id)
            if number is None:
                raise
            raise UnreachableError(
                f"{NO_COORDINATOR}: the offsets partition {number} of group '{group_id}' has no leader at "
                f"{self.bootstrap_server}"
            ) from error

    def _errors_of(
        self, group_id: str, partitions: Collection[Place], timeout: float, *, require_stable: bool
    ) -> dict[Place, CommittedOffset]:
        """Return why the partitions have no offset.

        librdkafka returns the error of each partition, which Kafka's own client hides.
        """
        requests, deadline = [TopicPartition(*place) for place in partitions], time.monotonic() + timeout
        if not requests:
            return {}

        def ask() -> dict[Place, CommittedOffset]:
            answer = self._admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group_id, requests)],
                require_stable=require_stable,
                request_timeout=min(max(deadline - time.monotonic(), _MIN_SECONDS), TIMEOUT),
            )
            [future] = answer.values()
            result = self._ask(f"the offsets of group '{group_id}'", lambda: self._wait_for_coordinator(future))
            return {(each.topic, each.partition): _committed(each) for each in result.topic_partitions}

        retry = patience(retry_if_result(_is_moving) | retry_if_exception(_is_temporary), timeout)
        found: dict[Place, CommittedOffset] = retry(ask)
        return found


def fetch_offsets(
    bootstrap_server: str,
    group: str,
    partitions: Collection[Place] | None = None,
    *,
    require_stable: bool = False,
    properties: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
) -> dict[Place, CommittedOffset]:
    """Fetch a group's committed offsets from its coordinator. See `GroupOffsets.fetch`.

    `properties` are Kafka's client properties, as in the file for --command-config.
    """
    cluster = GroupOffsets(bootstrap_server, properties)
    return cluster.fetch(group, partitions, require_stable=require_stable, timeout=timeout)


def commit_offsets(
    bootstrap_server: str,
    group: str,
    offsets: Mapping[Place, int | CommittedOffset],
    *,
    properties: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
) -> dict[Place, str | None]:
    """Commit offsets of a group without members to its coordinator. See `GroupOffsets.commit`.

    You can pass the result of `fetch_offsets`.
    """
    return GroupOffsets(bootstrap_server, properties).commit(group, offsets, timeout=timeout)


def committed_of(
    cluster: Cluster,
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
    with java_admin(cluster.bootstrap_server, {**properties, **LIMITED_RETRIES}) as admin:
        for group_id in group_ids:
            try:
                offsets = admin.fetch(group_id, None, timeout, require_stable=False)
            except Py4JJavaError as error:
                if (name := admin.error_name(error)) == NO_RIGHT_TO_GROUP:
                    raise cluster.lacks(describe_each("group", [group_id])) from error
                found[group_id] = name if _leaderless(cluster, group_id) is None else NO_COORDINATOR
            else:
                found[group_id] = {
                    place: each.offset for place, each in offsets.items() if not topics or place[0] in topics
                }
    return found


def _leaderless(cluster: Cluster, group_id: str) -> int | None:
    """Return the group's offsets partition if it has no leader: clients report the missing coordinator as a timeout."""
    try:
        leaders = cluster.leaders(OFFSETS_TOPIC)
    except ClusterError:
        return None
    number = partition_for(group_id, len(leaders))
    return number if leaders[number] is None else None


def _is_moving(found: Mapping[Place, CommittedOffset]) -> bool:
    return any(each.error in COORDINATOR_MOVES for each in found.values())


def _is_temporary(error: BaseException) -> bool:
    reason = error.__cause__
    return isinstance(reason, KafkaException) and kafka_name(reason.args[0]) in COORDINATOR_MOVES


def _committed(answer: TopicPartition) -> CommittedOffset:
    if answer.error:
        return CommittedOffset(None, error=kafka_name(answer.error))
    # Committed just now. Ignore librdkafka's metadata, which may be wrong.
    return CommittedOffset(None) if answer.offset < 0 else CommittedOffset(answer.offset, answer.leader_epoch)


def _to_commit(place: Place, offset: int | CommittedOffset) -> CommittedOffset:
    _require_place(place)
    commit = offset if isinstance(offset, CommittedOffset) else CommittedOffset(offset)
    require_utf8(f"metadata of {place[0]}-{place[1]}", commit.metadata)
    if commit.offset is None or commit.offset < 0:
        raise UsageError(f"cannot commit {commit.offset} for {place[0]}-{place[1]}: an offset must be 0 or more")
    return commit


def _require_place(place: Place) -> None:
    require_text("topic", place[0])
    if place[1] < 0:
        raise UsageError(f"topic {place[0]} cannot have a partition {place[1]}")


def require_text(what: str, text: str) -> None:
    """Raise UsageError for a name that librdkafka would cut at a NUL, or could not send."""
    if not text or "\0" in text:
        raise UsageError(f"the {what} {text!r} is empty or contains a NUL, where librdkafka would cut it")
    require_utf8(what, text)


def require_utf8(what: str, text: str) -> None:
    """Raise UsageError for a text that cannot be sent, because it is not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the {what} {text!r} is not valid UTF-8") from error
