"""The plans that delete: offsets of topics, and groups with all their offsets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from offsetstream.cluster.committed import CommittedOffset, Place, with_offsets
from offsetstream.cluster.group_admin import GroupAdmin
from offsetstream.cluster.metadata import MetadataCache
from offsetstream.cluster.permissions import require_to_read, require_to_see_topics_of_groups
from offsetstream.operations.plan import ACTIVE, NO_OFFSET, NOTHING, TYPE, Change, Objection, Plan
from offsetstream.operations.reset import open_transactions


def plan_offset_deletion(
    cluster: MetadataCache, admin: GroupAdmin, group_id: str, topics: Mapping[str, Collection[int] | None]
) -> Plan:
    """Return the plan that deletes what a group has committed for topics, or some of their partitions.

    A group with members may lose offsets of topics that these do not read: the coordinator tells. A topic that is gone
    may well have offsets left.
    """
    plan = Plan("delete-offsets")
    require_to_read(cluster, topics)
    standing, committed = admin.standing(group_id), with_offsets(admin.offsets(group_id))
    plan.objections += _of_other_types(group_id, standing.group_type, "--delete-offsets")
    if standing.members:
        plan.notes.append(
            f"group '{group_id}' is {standing.state} with {standing.members} members: its coordinator refuses what "
            "they subscribe to, and 'offsets undo' can take the rest back only once they have stopped"
        )
    wanted: set[Place] = set()
    for topic, numbers in topics.items():
        places = {each for each in committed if each[0] == topic and (numbers is None or each[1] in numbers)}
        lacking = {(topic, number) for number in numbers or ()} - places
        if lacking or not places:
            told = "nothing is committed for it"
            plan.objections += [Objection(NO_OFFSET, group_id, each, told) for each in sorted(lacking or {(topic, 0)})]
        wanted |= places
    plan.objections += open_transactions(admin, group_id, wanted)
    plan.changes += _deleted(cluster, {group_id: {place: committed[place] for place in sorted(wanted)}})
    return plan


def plan_group_deletion(cluster: MetadataCache, admin: GroupAdmin, group_ids: Collection[str]) -> Plan:
    """Return the plan that deletes groups with all that is committed for them."""
    plan = Plan("delete-groups")
    require_to_see_topics_of_groups(cluster, ())
    found: dict[str, dict[Place, CommittedOffset]] = {}
    for group_id in sorted(group_ids):
        standing, committed = admin.standing(group_id), with_offsets(admin.offsets(group_id))
        plan.objections += _of_other_types(group_id, standing.group_type, "--delete")
        if standing.group_type is None and not committed:
            plan.objections.append(Objection(NOTHING, group_id, None, "GROUP_ID_NOT_FOUND: there is no such group"))
            continue
        if standing.state not in {"Empty", "Dead"}:
            told = f"NON_EMPTY_GROUP: it is {standing.state} with {standing.members} members: stop its consumers first"
            plan.objections.append(Objection(ACTIVE, group_id, None, told))
        plan.objections += open_transactions(admin, group_id, committed)
        plan.deleted_groups.append(group_id)
        found[group_id] = committed
    plan.changes += _deleted(cluster, found)
    return plan


def _deleted(cluster: MetadataCache, committed: Mapping[str, Mapping[Place, CommittedOffset]]) -> Iterator[Change]:
    """Yield the changes that delete what groups have; topics are described all at once."""
    cluster.refresh({topic for offsets in committed.values() for topic, _ in offsets})
    known = cluster.known
    for group_id, offsets in committed.items():
        for (topic, number), each in sorted(offsets.items()):
            topic_id = known[topic].topic_id if topic in known else None
            yield Change(group_id, topic, number, each, None, topic_id=topic_id)


def _of_other_types(group_id: str, group_type: str | None, option: str) -> list[Objection]:
    if group_type not in {"Share", "Streams"}:
        return []
    tool = f"kafka-{group_type.lower()}-groups"
    told = f"it is a {group_type} group, whose state no snapshot would have: {tool} {option} does it"
    return [Objection(TYPE, group_id, None, told)]
