"""Groups that go on in another cluster: which offset of its logs is theirs."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from offsetstream.cluster.committed import CommittedOffset, Place
from offsetstream.cluster.group_admin import GroupAdmin
from offsetstream.cluster.log_ends import LogEnd, NoEnd
from offsetstream.cluster.metadata import MetadataCache
from offsetstream.cluster.reading import ends_of
from offsetstream.errors import ClusterError, UsageError
from offsetstream.operations.correspondence import Timed, first_of_times, other_times
from offsetstream.operations.offset_file import Moved, by_group, require_place
from offsetstream.operations.plan import OTHER_TIMES, Change, Objection, Plan
from offsetstream.operations.reset import Scope, plan_reset
from offsetstream.operations.targets import Target


class Renames:
    """What topics are called in the other cluster: the first pattern that a whole name matches says it."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Take `PATTERN=NAME`, as re.sub has them; UsageError for what is none."""
        self._patterns: list[tuple[re.Pattern[str], str]] = []
        for text in texts:
            pattern, equals, name = text.rpartition("=")
            if not (pattern and equals and name):
                raise UsageError(f"--rename-topic {text} is no PATTERN=NAME, as in '(.*)=dc1.\\1'")
            try:
                self._patterns.append((re.compile(pattern), name))
            except re.error as error:
                raise UsageError(f"--rename-topic {text}: {error}") from error

    def name(self, topic: str) -> str:
        """Return what a topic is called there."""
        for pattern, name in self._patterns:
            if found := pattern.fullmatch(topic):
                try:
                    return found.expand(name)
                except (re.error, IndexError) as error:
                    raise UsageError(f"--rename-topic {pattern.pattern}={name}: {error}") from error
        return topic


def renamed(moved: Collection[Moved], renames: Renames) -> list[Moved]:
    """Return the offsets under the topics' names there; UsageError where two topics become one."""
    found = [replace(each, topic=renames.name(each.topic)) for each in moved]
    before: dict[str, str] = {}
    for old, new in zip(moved, found, strict=True):
        require_place(new.topic, (), "--rename-topic")
        known = before.setdefault(new.topic, old.topic)
        if known != old.topic:
            raise UsageError(f"--rename-topic makes one topic, {new.topic}, of {known} and {old.topic}")
    return found


def plan_import(
    cluster: MetadataCache,
    admin: GroupAdmin,
    moved: Collection[Moved],
    timeout: float,
    *,
    same_log: bool,
    properties: Mapping[str, str] | None = None,
) -> Plan:
    """Return what the groups' offsets become in this cluster: the same ones, or those of the records' times.

    `properties` are those of the cluster's clients. Raises what `GroupAdmin` and `Connection` do, UsageError where an
    offset has no time.
    """
    why: dict[tuple[Place, int], str] = {}
    if same_log:
        offsets = by_group((each, each.offset) for each in moved)
    else:
        offsets, why = _of_times(cluster, properties or {}, moved, timeout)
    target = Target("offsets", offsets=offsets)
    plan = plan_reset(cluster, admin, sorted(offsets), Scope({}), target, timeout, kind="import", may_be_new=True)
    timed = {(each.group_id, each.place): each.timed for each in moved if not same_log}
    plan.changes = [replace(each, read_again=_read_again(each, timed.get(_key(each)))) for each in plan.changes]
    for each in plan.changes:
        found = timed.get(_key(each))
        if found is not None and (each.place, found.since_ms) in why:
            plan.objections.append(Objection(OTHER_TIMES, *_key(each), why[each.place, found.since_ms]))
    return plan


def _key(change: Change) -> tuple[str, Place]:
    return change.group_id, change.place


def _of_times(
    cluster: MetadataCache, properties: Mapping[str, str], moved: Collection[Moved], timeout: float
) -> tuple[dict[str, dict[Place, CommittedOffset]], dict[tuple[Place, int], str]]:
    """Return the first offset of each time here, and which times are none of a copy.

    Who has read all there was goes on at the end of the log.
    """
    deadline = time.monotonic() + timeout
    told = ends_of(cluster, {each.place for each in moved}, deadline)
    if silent := next((place for place, end in told.items() if isinstance(end, NoEnd)), None):
        raise ClusterError(f"where the log of {silent.topic}-{silent.partition} ends is not told: try again")
    ends = {(place.topic, place.partition): end for place, end in told.items() if isinstance(end, LogEnd)}
    since = {each: _since(each) for each in moved}
    wanted = {(each.place, at) for each, at in since.items() if each.place in ends}
    first = first_of_times(cluster, wanted, deadline)
    exact = {(each.place, each.timed.since_ms) for each in moved if each.timed and not each.timed.read_again}
    why = other_times(cluster, properties, {each: first.get(each) for each in wanted}, exact, ends, deadline)
    last = {place: end.high_watermark for place, end in ends.items()}
    found = ((each, first.get((each.place, at), last.get(each.place, 0))) for each, at in since.items())
    return by_group(found), why


def _since(moved: Moved) -> int:
    if moved.timed is None:
        raise UsageError("the file has no times of records: make it by 'offsets export --with-times'")
    return moved.timed.since_ms


def _read_again(change: Change, timed: Timed | None) -> int | None:
    """Return how many records are read again: those that the log here has of what was read there, or here.

    None where the log here has none of them yet.
    """
    back = max(-(change.distance or 0), 0)
    if timed is None or change.new is None or change.log_end is None:
        return back
    here = change.log_end - (change.new.offset or 0)
    if timed.read_again and not here:
        return None  # the copy lags behind
    return max(min(timed.read_again, here), back)
