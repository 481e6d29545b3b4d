"""The plan that takes an operation back: each partition gets what the snapshot has, if nobody moved it meanwhile.

An operation that was killed at any moment has done some of its changes and not the others, so each partition of it
stands where it stood before or where it was to stand after. One that stands elsewhere was moved by somebody else.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from offsetstream.cluster.committed import CommittedOffset, Place
from offsetstream.cluster.group_admin import GroupAdmin
from offsetstream.cluster.log_ends import Answers, LogEnd, TopicPlace
from offsetstream.cluster.metadata import MetadataCache
from offsetstream.cluster.permissions import require_to_read
from offsetstream.cluster.reading import ends_of
from offsetstream.operations.plan import MOVED, NO_TOPIC, OUT_OF_RANGE, Change, Objection, Plan
from offsetstream.operations.reset import long_metadata, objections_to_group, recreated
from offsetstream.operations.snapshot import Snapshot


def plan_undo(cluster: MetadataCache, admin: GroupAdmin, snapshot: Snapshot, timeout: float) -> Plan:
    """Return what takes back what the snapshot's operation did; raises what `GroupAdmin` and `Connection` do."""
    plan = Plan("undo")
    require_to_read(cluster, {each.topic for each in snapshot.changes})
    ends = ends_of(cluster, {each.place for each in snapshot.changes}, time.monotonic() + timeout)
    for group_id in sorted({each.group_id for each in snapshot.changes}):
        of_group = [each for each in snapshot.changes if each.group_id == group_id]
        offsets = admin.offsets(group_id)
        places = [each.place for each in of_group]
        plan.objections += objections_to_group(group_id, admin.standing(group_id), offsets, places, may_be_new=True)
        for each in of_group:
            for found in _taken_back(each, offsets.committed.get(each.place), ends):
                (plan.objections if isinstance(found, Objection) else plan.changes).append(found)  # type: ignore[arg-type]
    ids: dict[Place, set[str]] = {each.place: {each.topic_id} for each in snapshot.changes if each.topic_id}
    plan.objections += [*recreated(plan.changes, ids), *long_metadata(cluster, plan.changes)]
    return plan


def _taken_back(done: Change, committed: CommittedOffset | None, ends: Answers) -> Iterator[Change | Objection]:
    if committed == done.present:
        return  # it was not done, or is taken back already
    found = ends.get(TopicPlace(*done.place))
    end = found if isinstance(found, LogEnd) else None
    yield Change(
        done.group_id,
        *done.place,
        committed,
        done.present,
        *((end.log_start_offset, end.high_watermark, end.topic_id) if end else (None, None, None)),
    )
    if committed != done.new:
        yield Objection(MOVED, done.group_id, done.place, f"the group has moved since: {_text(committed)} is committed")
    if done.present is None:
        return
    if found is None:
        yield Objection(NO_TOPIC, done.group_id, done.place, "there is no such partition any more")
    elif end is not None and not (end.log_start_offset or 0) <= (done.present.offset or 0) <= end.high_watermark:
        told = f"{done.present.offset} is not in the log any more: it begins at {end.log_start_offset}"
        yield Objection(OUT_OF_RANGE, done.group_id, done.place, told)


def _text(committed: CommittedOffset | None) -> str:
    return "nothing" if committed is None else str(committed.offset)
