"""Plan an undo: each partition gets its offset from the snapshot, unless somebody moved the group meanwhile.

An operation may have been killed halfway. So each partition has either its old offset or the operation's new one. If it
has another offset, somebody else moved it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from offsetstream.cluster.answers import CommittedOffset, Place, with_offsets
from offsetstream.cluster.client import require_to_read
from offsetstream.cluster.group_admin import GroupAdmin
from offsetstream.cluster.log_ends import Answers, LogEnd, TopicPartitionKey
from offsetstream.cluster.metadata import MetadataCache
from offsetstream.cluster.reading import ends_of
from offsetstream.operations.plan import MOVED, OUT_OF_RANGE, Change, Objection, Plan
from offsetstream.operations.reset import (
    EVERYTHING,
    Scope,
    is_another,
    long_metadata,
    objections_to_group,
    open_transactions,
    recreation_objections,
    require_some,
    without_epochs,
)
from offsetstream.operations.snapshot import Snapshot


def plan_undo(
    cluster: MetadataCache, admin: GroupAdmin, snapshot: Snapshot, timeout: float, *, scope: Scope = EVERYTHING
) -> Plan:
    """Return the plan that reverts the snapshot's operation, or the part of it in `scope`.

    Skips deleted topics, which cannot have offsets. Raises whatever `GroupAdmin` and `Connection` raise.
    """
    plan = Plan("undo")
    require_some(scope, {each.place for each in snapshot.changes})
    wanted = [each for each in snapshot.changes if _is_in(scope, each.place)]
    require_to_read(cluster, {each.topic for each in wanted})
    ends = ends_of(cluster, {each.place for each in wanted}, time.monotonic() + timeout)
    gone = {each.place for each in wanted if TopicPartitionKey(*each.place) not in ends}
    plan.notes += [f"{topic}-{number} no longer exists and is skipped" for topic, number in sorted(gone)]
    by_group: dict[str, list[Change]] = {}
    for each in wanted:
        if each.place not in gone:
            by_group.setdefault(each.group_id, []).append(each)
    for group_id, changes in sorted(by_group.items()):
        committed = with_offsets(admin.offsets(group_id))
        plan.objections += objections_to_group(group_id, admin.standing(group_id), committed, may_be_new=True)
        plan.objections += open_transactions(admin, group_id, {each.place for each in changes})
        for each in changes:
            for found in _reverted(each, committed.get(each.place), ends):
                (plan.objections if isinstance(found, Objection) else plan.changes).append(found)  # type: ignore[arg-type]
    ids = {(each.group_id, each.place): {each.topic_id} for each in wanted if each.topic_id}
    plan.objections += [*recreation_objections(plan.changes, ids), *long_metadata(cluster, plan.changes)]
    plan.changes = without_epochs(plan.changes, plan.objections)
    return plan


def _is_in(scope: Scope, place: Place) -> bool:
    topic, number = place
    numbers = scope.topics.get(topic, ())
    return scope.all_topics or numbers is None or number in numbers


def _reverted(done: Change, committed: CommittedOffset | None, ends: Answers) -> Iterator[Change | Objection]:
    if committed == done.present:
        return  # never done, or already reverted
    found = ends.get(TopicPartitionKey(*done.place))
    end = found if isinstance(found, LogEnd) else None
    yield Change(
        done.group_id,
        *done.place,
        committed,
        done.present,
        *((end.log_start_offset, end.high_watermark, end.topic_id) if end else (None, None, None)),
    )
    is_recreated = end is not None and is_another(end.topic_id, [done.topic_id] if done.topic_id else ())
    # A deleted topic loses its offsets: then nobody moved the group, and `recreation_objections` yields the objection.
    if committed != done.new and not (committed is None and is_recreated):
        yield Objection(
            MOVED,
            done.group_id,
            done.place,
            f"the group has moved since: its committed offset is now {_text(committed)}",
        )
    if done.present is None:
        return
    if end is not None and not (end.log_start_offset or 0) <= (done.present.offset or 0) <= end.high_watermark:
        reason = (
            f"offset {done.present.offset} is now outside the log ({end.log_start_offset or 0} to "
            f"{end.high_watermark}): it would still be committed"
        )
        yield Objection(OUT_OF_RANGE, done.group_id, done.place, reason)


def _text(committed: CommittedOffset | None) -> str:
    return "none" if committed is None else str(committed.offset)
