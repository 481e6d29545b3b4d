"""Fetch and commit offsets with Kafka's own client.

confluent-kafka (2.16) ignores the length of offset metadata: it appends a NUL, which ends up in the log, and it reads
past the end of metadata without one. On the other hand, Kafka's client hides the error of a single partition.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from py4j.protocol import Py4JJavaError

from offsetstream.cluster.committed import CommittedOffset, Place
from offsetstream.cluster.java_client import NO_ANSWER, NO_RIGHT_TO_GROUP, error_name, retry_while_unavailable

_MIN_SECONDS = 1.0


def fetch_by_java(
    jvm: Any, client: Any, group_id: str, partitions: Collection[Place] | None, timeout: float, *, require_stable: bool
) -> dict[Place, CommittedOffset]:
    """Return the committed offsets of the partitions (None: all), without partitions that have an error.

    With named partitions, those without an offset are omitted, too. Without, a partition with a negative committed
    offset has no offset in the result. Retries for `timeout` seconds while the coordinator moves or loads. Raises what
    `java_admin` raises.
    """
    admin = jvm.org.apache.kafka.clients.admin
    spec = admin.ListConsumerGroupOffsetsSpec()
    if partitions is not None:
        spec = spec.topicPartitions([_place(jvm, place) for place in partitions])
    left_ms = _time_left(timeout)

    def ask() -> Any:
        options = admin.ListConsumerGroupOffsetsOptions().timeoutMs(left_ms()).requireStable(require_stable)
        return client.listConsumerGroupOffsets({group_id: spec}, options).partitionsToOffsetAndMetadata(group_id).get()

    found = retry_while_unavailable(jvm, ask, timeout)
    return {
        (place.topic(), place.partition()): CommittedOffset(None)
        if committed is None
        else CommittedOffset(committed.offset(), committed.leaderEpoch().orElse(None), committed.metadata())
        for place, committed in found.items()
        if committed is not None or partitions is None
    }


def commit_by_java(
    jvm: Any, client: Any, group_id: str, offsets: Mapping[Place, CommittedOffset], timeout: float
) -> dict[Place, str | None]:
    """Commit offsets to the group's coordinator. Return Kafka's name of each partition's error (None: done).

    Retries and raises like `fetch_by_java`, also if the coordinator does not answer in time.
    """
    commits, places = jvm.java.util.HashMap(), {place: _place(jvm, place) for place in offsets}
    optional = jvm.java.util.Optional
    for place, each in offsets.items():
        epoch = optional.empty() if each.leader_epoch is None else optional.of(each.leader_epoch)
        to_commit = jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata(each.offset, epoch, each.metadata)
        commits[places[place]] = to_commit
    left_ms = _time_left(timeout)

    def ask() -> dict[Place, str | None]:
        options = jvm.org.apache.kafka.clients.admin.AlterConsumerGroupOffsetsOptions().timeoutMs(left_ms())
        result = client.alterConsumerGroupOffsets(group_id, commits, options)
        return errors_by_place(jvm, {place: result.partitionResult(java) for place, java in places.items()})

    return retry_while_unavailable(jvm, ask, timeout)


def _time_left(timeout: float) -> Callable[[], int]:
    """Return a function for the remaining milliseconds of `timeout` seconds, at least one second."""
    deadline = time.monotonic() + timeout
    return lambda: round(max(deadline - time.monotonic(), _MIN_SECONDS) * 1000)


def _place(jvm: Any, place: Place) -> Any:
    return jvm.org.apache.kafka.common.TopicPartition(*place)


def errors_by_place(jvm: Any, futures: Mapping[Place, Any]) -> dict[Place, str | None]:
    """Return Kafka's name of each partition's error (None: done). Raise errors that concern the complete request."""
    return {place: _error(jvm, future) for place, future in futures.items()}


def _error(jvm: Any, future: Any) -> str | None:
    try:
        future.get()
    except Py4JJavaError as error:
        name = error_name(jvm, error)
        if name in NO_ANSWER or name == NO_RIGHT_TO_GROUP:  # these concern the complete request
            raise
        return name
    return None
