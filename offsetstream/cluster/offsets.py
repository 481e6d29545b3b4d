"""Committed offsets of a live group: fetched from its coordinator, and committed to it.

A coordinator that moves or loads is asked again, for as long as `timeout` says (seconds). Errors of one partition are
answers, by Kafka's names; those of the whole question are raised: UsageError for what cannot be asked,
UnauthorisedError where a right is lacking, UnreachableError where the coordinator is not there in time,
EnvironmentNotReadyError where Java is not, ClusterError for the rest.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from py4j.protocol import Py4JJavaError
from tenacity import retry_if_exception, retry_if_result

from offsetstream.cluster.client import Cluster
from offsetstream.cluster.committed import CommittedOffset, Place
from offsetstream.cluster.connection import TIMEOUT
from offsetstream.cluster.error_names import COORDINATOR_MOVES, kafka_name
from offsetstream.cluster.java_client import FEW_TRIES, NO_RIGHT_TO_GROUP, error_name, java_admin
from offsetstream.cluster.java_offsets import commit_by_java, fetch_by_java
from offsetstream.cluster.patience import patience
from offsetstream.cluster.permissions import sees_all_topics
from offsetstream.cluster.rights import ALL_TOPICS, OFFSETS_TOPIC, Right
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.errors import ClusterError, UnreachableError, UsageError

_LEAST = 1.0  # seconds


class GroupOffsets(Cluster):
    """A live cluster whose coordinators are asked for the offsets of groups, and given some."""

    def __init__(self, bootstrap_server: str, properties: Mapping[str, str] | None = None) -> None:
        super().__init__(bootstrap_server, properties)
        self._properties = dict(properties or {})

    def fetch(
        self,
        group_id: str,
        partitions: Collection[Place] | None = None,
        *,
        require_stable: bool = False,
        timeout: float = TIMEOUT,
    ) -> dict[Place, CommittedOffset]:
        """Return what is committed for the partitions, or for all that the group has offsets of (OffsetFetch).

        With `require_stable` a partition that an open transaction is to commit to has the error
        UNSTABLE_OFFSET_COMMIT (KIP-447). One that an offset below zero was committed for has no offset. That a group
        has no offset at all is believed only of a user who may see all topics: brokers leave out those that he may
        not, without a word. In the moment after its broker was lost a group's new coordinator (4.3.1) answers as of
        its high watermark: the last commits may not be there yet.
        """
        require_text("group id", group_id)
        for place in partitions or ():
            _require_place(place)
        if partitions is not None and not partitions:
            return {}
        with self._by_java(group_id, "DESCRIBE") as (jvm, client):
            found = fetch_by_java(jvm, client, group_id, partitions, timeout, require_stable=require_stable)
            wanted: Collection[Place] | None = partitions
            if partitions is None and require_stable:  # which ones it left out
                wanted = fetch_by_java(jvm, client, group_id, None, timeout, require_stable=False)
        omitted = [place for place in wanted or () if place not in found]
        if not found and partitions is None and not omitted and not sees_all_topics(self):
            raise self.lacks([ALL_TOPICS])
        return found | (self._errors_of(group_id, omitted, timeout, require_stable=require_stable))

    def commit(
        self, group_id: str, offsets: Mapping[Place, int | CommittedOffset], *, timeout: float = TIMEOUT
    ) -> dict[Place, str | None]:
        """Commit as a consumer does that is no member; return the error of each partition, None where it is done.

        A group with members answers UNKNOWN_MEMBER_ID. What is committed for a partition that an open transaction is to
        commit to is replaced when that ends. To commit again does no harm, where the answer was lost.
        """
        require_text("group id", group_id)
        wanted = {place: _to_commit(place, offset) for place, offset in offsets.items()}
        if not wanted:
            return {}
        with self._by_java(group_id, "READ") as (jvm, client):
            return commit_by_java(jvm, client, group_id, wanted, timeout)

    @contextmanager
    def _by_java(self, group_id: str, operation: str) -> Iterator[tuple[Any, Any]]:
        try:
            with java_admin(self.bootstrap_server, self._properties | FEW_TRIES) as (jvm, client):
                try:
                    yield jvm, client
                except Py4JJavaError as error:
                    if error_name(jvm, error) != NO_RIGHT_TO_GROUP:
                        raise
                    raise self.lacks([Right(operation, "group", group_id)]) from error
        except UnreachableError as error:
            raise self._without_coordinator(group_id, error) from error

    def _without_coordinator(self, group_id: str, error: UnreachableError) -> UnreachableError:
        """Return the error by Kafka's name: clients have a timeout for a coordinator that nobody is."""
        try:
            leaders = self.leaders(OFFSETS_TOPIC)
        except ClusterError:
            return error
        number = partition_for(group_id, len(leaders))
        if leaders[number] is not None:
            return error
        return UnreachableError(
            f"COORDINATOR_NOT_AVAILABLE: the offsets partition {number} of group '{group_id}' has no leader at "
            f"{self.bootstrap_server}"
        )

    def _errors_of(
        self, group_id: str, partitions: Collection[Place], timeout: float, *, require_stable: bool
    ) -> dict[Place, CommittedOffset]:
        """Return why the partitions have no offset, by librdkafka, which tells each one's error."""
        asked, deadline = [TopicPartition(*place) for place in partitions], time.monotonic() + timeout
        if not asked:
            return {}

        def ask() -> dict[Place, CommittedOffset]:
            answer = self._admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group_id, asked)],
                require_stable=require_stable,
                request_timeout=min(max(deadline - time.monotonic(), _LEAST), TIMEOUT),
            )
            [of_group] = answer.values()
            told = self._ask(f"the offsets of group '{group_id}'", lambda: self._told_by_coordinator(of_group))
            return {(each.topic, each.partition): _committed(each) for each in told.topic_partitions}

        again = patience(retry_if_result(_is_moving) | retry_if_exception(_passes), timeout)
        found: dict[Place, CommittedOffset] = again(ask)
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
    """Fetch a group's committed offsets from its coordinator; see `GroupOffsets.fetch`.

    `properties` are Kafka's client properties, as in a file of --command-config.
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
    """Commit offsets of a group without members to its coordinator; see `GroupOffsets.commit`.

    What `fetch_offsets` returned may be committed as it is.
    """
    return GroupOffsets(bootstrap_server, properties).commit(group, offsets, timeout=timeout)


def _is_moving(found: Mapping[Place, CommittedOffset]) -> bool:
    return any(each.error in COORDINATOR_MOVES for each in found.values())


def _passes(error: BaseException) -> bool:
    reason = error.__cause__
    return isinstance(reason, KafkaException) and kafka_name(reason.args[0]) in COORDINATOR_MOVES


def _committed(answer: TopicPartition) -> CommittedOffset:
    if answer.error:
        return CommittedOffset(None, error=kafka_name(answer.error))
    # Committed just now; what librdkafka says of its metadata is not to be believed.
    return CommittedOffset(None) if answer.offset < 0 else CommittedOffset(answer.offset, answer.leader_epoch)


def _to_commit(place: Place, wanted: int | CommittedOffset) -> CommittedOffset:
    _require_place(place)
    commit = wanted if isinstance(wanted, CommittedOffset) else CommittedOffset(wanted)
    require_utf8(f"metadata of {place[0]}-{place[1]}", commit.metadata)
    if commit.offset is None or commit.offset < 0:
        raise UsageError(f"{commit.offset} cannot be committed for {place[0]}-{place[1]}: an offset is 0 or more")
    return commit


def _require_place(place: Place) -> None:
    require_text("topic", place[0])
    if place[1] < 0:
        raise UsageError(f"{place[0]} has no partition {place[1]}")


def require_text(what: str, text: str) -> None:
    """Raise UsageError for a name that librdkafka would cut off, or could not send: another group would be meant."""
    if not text or "\0" in text:
        raise UsageError(f"the {what} {text!r} is empty or has a NUL, at which librdkafka ends it")
    require_utf8(what, text)


def require_utf8(what: str, text: str) -> None:
    """Raise UsageError for a text that no request can have."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the {what} {text!r} is not UTF-8: name one that can be") from error
