"""Offsets fetched and committed by Kafka's own client.

Of metadata confluent-kafka (2.16) takes the length for none: it writes a NUL behind it, which then is in the log, and
reads on behind what has none. Kafka's client keeps an error of a partition that is fetched to itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from py4j.protocol import Py4JJavaError

from offsetstream.cluster.committed import CommittedOffset, Place
from offsetstream.cluster.java_client import NO_ANSWER, NO_RIGHT_TO_GROUP, asked_again, error_name

_LEAST = 1.0  # seconds


def fetch_by_java(
    jvm: Any, client: Any, group_id: str, partitions: Collection[Place] | None, timeout: float, *, require_stable: bool
) -> dict[Place, CommittedOffset]:
    """Return what is committed for the partitions, or for all; one that has an error is left out.

    Of partitions that are named, one without an offset is left out, too. Of all, one that an offset below zero was
    committed for has none. While the coordinator moves or loads it is asked again, for `timeout` seconds. Raises what
    `java_admin` does.
    """
    admin = jvm.org.apache.kafka.clients.admin
    spec = admin.ListConsumerGroupOffsetsSpec()
    if partitions is not None:
        spec = spec.topicPartitions([_place(jvm, place) for place in partitions])
    left = _time_left(timeout)

    def ask() -> Any:
        options = admin.ListConsumerGroupOffsetsOptions().timeoutMs(left()).requireStable(require_stable)
        return client.listConsumerGroupOffsets({group_id: spec}, options).partitionsToOffsetAndMetadata(group_id).get()

    found = asked_again(jvm, ask, timeout)
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
    """Commit to the group's coordinator; return the error of each partition by Kafka's name, None where it is done.

    As for `fetch_by_java`; a coordinator that is not there in time has answered nothing, which is raised.
    """
    wanted, places = jvm.java.util.HashMap(), {place: _place(jvm, place) for place in offsets}
    optional = jvm.java.util.Optional
    for place, each in offsets.items():
        epoch = optional.empty() if each.leader_epoch is None else optional.of(each.leader_epoch)
        to_commit = jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata(each.offset, epoch, each.metadata)
        wanted[places[place]] = to_commit
    left = _time_left(timeout)

    def ask() -> dict[Place, str | None]:
        options = jvm.org.apache.kafka.clients.admin.AlterConsumerGroupOffsetsOptions().timeoutMs(left())
        told = client.alterConsumerGroupOffsets(group_id, wanted, options)
        return errors_by_place(jvm, {place: told.partitionResult(java) for place, java in places.items()})

    return asked_again(jvm, ask, timeout)


def _time_left(timeout: float) -> Callable[[], int]:
    """Return what tells how many milliseconds of `timeout` seconds are left, a second at least."""
    deadline = time.monotonic() + timeout
    return lambda: round(max(deadline - time.monotonic(), _LEAST) * 1000)


def _place(jvm: Any, place: Place) -> Any:
    return jvm.org.apache.kafka.common.TopicPartition(*place)


def errors_by_place(jvm: Any, futures: Mapping[Place, Any]) -> dict[Place, str | None]:
    """Return the error of each partition by Kafka's name, None where it is done; raise what is no partition's own."""
    return {place: _error(jvm, future) for place, future in futures.items()}


def _error(jvm: Any, future: Any) -> str | None:
    try:
        future.get()
    except Py4JJavaError as error:
        name = error_name(jvm, error)
        if name in NO_ANSWER or name == NO_RIGHT_TO_GROUP:  # which are answers for no partition
            raise
        return name
    return None
