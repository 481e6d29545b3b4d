"""Plan deletions: of a group's offsets for some topics, and of groups with all their offsets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from offsetstream.cluster.answers import CommittedOffset, Place, with_offsets
from offsetstream.cluster.client import require_to_read, require_to_see_topics_of_groups
from offsetstream.cluster.group_admin import GroupAdmin
from offsetstream.cluster.metadata import MetadataCache
from offsetstream.operations.plan import ACTIVE, NO_OFFSET, NOTHING, TYPE, Change, Objection, Plan
from offsetstream.operations.reset import open_transactions


def plan_offset_deletion(
    cluster: MetadataCache, admin: GroupAdmin, group_id: str, topics: Mapping[str, Collection[int] | None]
) -> Plan:
    """Return the plan that deletes a group's offsets for topics, or for some of their partitions.

    A group with members may lose offsets of topics that its members do not subscribe to; the coordinator checks this.
    A group may still have offsets of a deleted topic.
    """
    plan = Plan("delete-offsets")
    require_to_read(cluster, topics)
    state, committed = admin.standing(group_id), with_offsets(admin.offsets(group_id))
    plan.objections += _unsupported_type(group_id, state.group_type, "--delete-offsets")
    if state.members:
        plan.notes.append(
            f"group '{group_id}' is {state.state} with {state.members} members. The coordinator refuses to delete "
            "offsets of topics to which they subscribe. Stop them before you use 'offsets undo'"
        )
    wanted: set[Place] = set()
    for topic, numbers in topics.items():
        places = {each for each in committed if each[0] == topic and (numbers is None or each[1] in numbers)}
        missing = {(topic, number) for number in numbers or ()} - places
        if missing or not places:
            reason = "the group has no committed offset for it"
            plan.objections += [
                Objection(NO_OFFSET, group_id, each, reason) for each in sorted(missing or {(topic, 0)})
            ]
        wanted |= places
    plan.objections += open_transactions(admin, group_id, wanted)
    plan.changes += _deletions(cluster, {group_id: {place: committed[place] for place in sorted(wanted)}})
    return plan


def plan_group_deletion(cluster: MetadataCache, admin: GroupAdmin, group_ids: Collection[str]) -> Plan:
    """Return the plan that deletes groups with all their offsets."""
    plan = Plan("delete-groups")
    require_to_see_topics_of_groups(cluster, ())
    found: dict[str, dict[Place, CommittedOffset]] = {}
    for group_id in sorted(group_ids):
        state, committed = admin.standing(group_id), with_offsets(admin.offsets(group_id))
        plan.objections += _unsupported_type(group_id, state.group_type, "--delete")
        if state.group_type is None and not committed:
            plan.objections.append(Objection(NOTHING, group_id, None, "GROUP_ID_NOT_FOUND: the group does not exist"))
            continue
        if state.state not in {"Empty", "Dead"}:
            reason = f"NON_EMPTY_GROUP: it is {state.state} with {state.members} members: stop its consumers first"
            plan.objections.append(Objection(ACTIVE, group_id, None, reason))
        plan.objections += open_transactions(admin, group_id, committed)
        plan.deleted_groups.append(group_id)
        found[group_id] = committed
    plan.changes += _deletions(cluster, found)
    return plan


def _deletions(cluster: MetadataCache, committed: Mapping[str, Mapping[Place, CommittedOffset]]) -> Iterator[Change]:
    """Yield the changes that delete these offsets. One request describes all topics."""
    cluster.refresh({topic for offsets in committed.values() for topic, _ in offsets})
    known = cluster.known
    for group_id, offsets in committed.items():
        for (topic, number), each in sorted(offsets.items()):
            topic_id = known[topic].topic_id if topic in known else None
            yield Change(group_id, topic, number, each, None, topic_id=topic_id)


def _unsupported_type(group_id: str, group_type: str | None, option: str) -> list[Objection]:
    if group_type not in {"Share", "Streams"}:
        return []
    tool = f"kafka-{group_type.lower()}-groups"
    reason = f"it is a {group_type} group, and a snapshot cannot hold its state: use {tool} {option}"
    return [Objection(TYPE, group_id, None, reason)]
