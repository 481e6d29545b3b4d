"""The plans that delete: offsets of topics, and groups with all their offsets."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from offsetstream.cluster.group_admin import GroupAdmin
from offsetstream.cluster.metadata import MetadataCache
from offsetstream.cluster.permissions import require_to_read, require_to_see_topics_of_groups
from offsetstream.operations.plan import ACTIVE, NO_GROUP, NO_OFFSET, TYPE, Change, Objection, Plan


def plan_offset_deletion(
    cluster: MetadataCache, admin: GroupAdmin, group_id: str, topics: Mapping[str, Collection[int] | None]
) -> Plan:
    """Return the plan that deletes what a group has committed for topics, or some of their partitions.

    A group with members may lose offsets of topics that these do not read: the coordinator tells. A topic that is gone
    may well have offsets left.
    """
    plan = Plan("delete-offsets")
    require_to_read(cluster, topics)
    standing, committed = admin.standing(group_id), admin.offsets(group_id).committed
    cluster.refresh(list(topics))
    plan.objections += _of_other_types(group_id, standing.group_type, "--delete-offsets")
    for topic, numbers in topics.items():
        places = [each for each in committed if each[0] == topic and (numbers is None or each[1] in numbers)]
        known = cluster.topic(topic)
        plan.changes += [
            Change(group_id, *place, committed[place], None, topic_id=known.topic_id if known else None)
            for place in sorted(places)
        ]
        lacking = {(topic, number) for number in numbers or ()} - set(places)
        if lacking or not places:
            told = "nothing is committed for it"
            plan.objections += [Objection(NO_OFFSET, group_id, each, told) for each in sorted(lacking or {(topic, 0)})]
    return plan


def plan_group_deletion(cluster: MetadataCache, admin: GroupAdmin, group_ids: Collection[str]) -> Plan:
    """Return the plan that deletes groups with all that is committed for them."""
    plan = Plan("delete-groups")
    require_to_see_topics_of_groups(cluster, ())
    for group_id in sorted(group_ids):
        standing, committed = admin.standing(group_id), admin.offsets(group_id).committed
        plan.objections += _of_other_types(group_id, standing.group_type, "--delete")
        if standing.group_type is None and not committed:
            plan.objections.append(Objection(NO_GROUP, group_id, None, "GROUP_ID_NOT_FOUND: there is no such group"))
            continue
        if standing.state not in {"Empty", "Dead"}:
            told = f"NON_EMPTY_GROUP: it is {standing.state} with {standing.members} members: stop its consumers first"
            plan.objections.append(Objection(ACTIVE, group_id, None, told))
        plan.deleted_groups.append(group_id)
        for place, each in sorted(committed.items()):
            known = cluster.topic(place[0])
            plan.changes.append(Change(group_id, *place, each, None, topic_id=known.topic_id if known else None))
    return plan


def _of_other_types(group_id: str, group_type: str | None, option: str) -> list[Objection]:
    if group_type not in {"Share", "Streams"}:
        return []
    tool = f"kafka-{group_type.lower()}-groups"
    told = f"it is a {group_type} group, whose state no snapshot would have: {tool} {option} does it"
    return [Objection(TYPE, group_id, None, told)]
