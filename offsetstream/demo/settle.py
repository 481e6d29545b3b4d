"""Waiting until the groups with members have come to rest: all in, everything read and committed."""

import time
from collections.abc import Mapping, Sequence

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient

from offsetstream.demo.members import GroupPlan, Member
from offsetstream.demo.topics import end_offsets
from offsetstream.errors import ClusterError

_SETTLE_SECONDS = 120.0
_LOOK_SECONDS = 0.2
_TIMEOUT = 30.0


def await_settled(admin: AdminClient, groups: Mapping[str, Sequence[Member]]) -> None:
    """Wait until each group is Stable with exactly these members and has committed all that is in its topics.

    Raises ClusterError after two minutes.
    """
    ends = end_offsets(admin)
    deadline = time.monotonic() + _SETTLE_SECONDS
    waiting = set(groups)
    while waiting := {group for group in waiting if not _is_settled(admin, groups[group], ends)}:
        if time.monotonic() > deadline:
            raise ClusterError(f"The demo's groups did not come to rest: {', '.join(sorted(waiting))}")
        time.sleep(_LOOK_SECONDS)


def _is_settled(admin: AdminClient, members: Sequence[Member], ends: Mapping[tuple[str, int], int]) -> bool:
    try:
        return _is_at_rest(admin, members, ends)
    except KafkaException:
        return False  # its coordinator is not there yet, or moves


def _is_at_rest(admin: AdminClient, members: Sequence[Member], ends: Mapping[tuple[str, int], int]) -> bool:
    plan = members[0].plan
    description = admin.describe_consumer_groups([plan.group_id])[plan.group_id].result(_TIMEOUT)
    in_group = {member.client_id for member in description.members}
    if description.state != ConsumerGroupState.STABLE or in_group != {member.client_id for member in members}:
        return False
    # Only now, with a coordinator that answers: asked for offsets where it is away, librdkafka 2.16 ends the process
    # with a segmentation fault (its issue 5040).
    return not plan.commits or _committed(admin, plan).items() >= _wanted(plan, ends).items()


def _wanted(plan: GroupPlan, ends: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    return {place: end for place, end in ends.items() if plan.reads(place[0]) and end > 0}


def _committed(admin: AdminClient, plan: GroupPlan) -> dict[tuple[str, int], int]:
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(plan.group_id)])
    found = asked[plan.group_id].result(_TIMEOUT).topic_partitions
    return {(place.topic, place.partition): place.offset for place in found}
