"""Plan an import: find the offsets at which groups of one cluster continue in another."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from offsetstream.cluster.answers import CommittedOffset, Place
from offsetstream.cluster.group_admin import GroupAdmin
from offsetstream.cluster.log_ends import LogEnd, NoEnd
from offsetstream.cluster.metadata import MetadataCache
from offsetstream.cluster.reading import ends_of
from offsetstream.errors import ClusterError, UsageError
from offsetstream.operations.offset_file import ExportedOffset, by_group, require_place
from offsetstream.operations.plan import OTHER_TIMES, Change, Objection, Plan
from offsetstream.operations.reset import Scope, plan_reset
from offsetstream.operations.targets import Target
from offsetstream.operations.timestamps import RecordTime, first_of_times, timestamp_problems


class Renames:
    """The names of topics in the other cluster. The first pattern that matches a complete name decides."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Parse `PATTERN=NAME` texts, with the syntax of `re.sub`. Raises UsageError for an invalid one."""
        self._patterns: list[tuple[re.Pattern[str], str]] = []
        for text in texts:
            pattern, equals, name = text.rpartition("=")
            if not (pattern and equals and name):
                raise UsageError(f"--rename-topic {text} is not PATTERN=NAME. Example: '(.*)=dc1.\\1'")
            try:
                self._patterns.append((re.compile(pattern), name))
            except re.error as error:
                raise UsageError(f"--rename-topic {text}: {error}") from error

    def name(self, topic: str) -> str:
        """Return the topic's name in the other cluster."""
        for pattern, name in self._patterns:
            if found := pattern.fullmatch(topic):
                try:
                    return found.expand(name)
                except (re.error, IndexError) as error:
                    raise UsageError(f"--rename-topic {pattern.pattern}={name}: {error}") from error
        return topic


def renamed(moved: Collection[ExportedOffset], renames: Renames) -> list[ExportedOffset]:
    """Return the offsets with the topics' new names. Raises UsageError if two topics get the same name."""
    found = [replace(each, topic=renames.name(each.topic)) for each in moved]
    before: dict[str, str] = {}
    for old, new in zip(moved, found, strict=True):
        require_place(new.topic, (), "--rename-topic")
        known = before.setdefault(new.topic, old.topic)
        if known != old.topic:
            raise UsageError(f"--rename-topic gives {known} and {old.topic} the same name, {new.topic}")
    return found


def plan_import(
    cluster: MetadataCache,
    admin: GroupAdmin,
    moved: Collection[ExportedOffset],
    timeout: float,
    *,
    same_log: bool,
    properties: Mapping[str, str] | None = None,
) -> Plan:
    """Return the plan that commits the offsets in this cluster.

    With `same_log`, the offsets stay the same. Otherwise the timestamps of their records find them. `properties` are
    client properties. Raises UsageError if an offset has no timestamp, and what `GroupAdmin` and `Connection` raise.
    """
    problems: dict[tuple[Place, int], str] = {}
    if same_log:
        offsets = by_group((each, each.offset) for each in moved)
    else:
        offsets, problems = _by_timestamp(cluster, properties or {}, moved, timeout)
    target = Target("offsets", offsets=offsets)
    plan = plan_reset(cluster, admin, sorted(offsets), Scope({}), target, timeout, kind="import", may_be_new=True)
    timed = {(each.group_id, each.place): each.timed for each in moved if not same_log}
    plan.changes = [replace(each, read_again=_read_again(each, timed.get(_key(each)))) for each in plan.changes]
    for each in plan.changes:
        found = timed.get(_key(each))
        if found is not None and (each.place, found.since_ms) in problems:
            plan.objections.append(Objection(OTHER_TIMES, *_key(each), problems[each.place, found.since_ms]))
    return plan


def _key(change: Change) -> tuple[str, Place]:
    return change.group_id, change.place


def _by_timestamp(
    cluster: MetadataCache, properties: Mapping[str, str], moved: Collection[ExportedOffset], timeout: float
) -> tuple[dict[str, dict[Place, CommittedOffset]], dict[tuple[Place, int], str]]:
    """Return the first offset at each timestamp, and the timestamps that this log does not preserve, with the reason.

    Without a record at that timestamp or later, the group continues at the end of the log.
    """
    deadline = time.monotonic() + timeout
    answers = ends_of(cluster, {each.place for each in moved}, deadline)
    if unknown := next((place for place, end in answers.items() if isinstance(end, NoEnd)), None):
        raise ClusterError(f"The end offset of {unknown.topic}-{unknown.partition} is unknown. Try again")
    ends = {(place.topic, place.partition): end for place, end in answers.items() if isinstance(end, LogEnd)}
    since = {each: _since(each) for each in moved}
    wanted = {(each.place, at) for each, at in since.items() if each.place in ends}
    first = first_of_times(cluster, wanted, deadline)
    exact = {(each.place, each.timed.since_ms) for each in moved if each.timed and not each.timed.read_again}
    problems = timestamp_problems(
        cluster, properties, {each: first.get(each) for each in wanted}, exact, ends, deadline
    )
    last = {place: end.high_watermark for place, end in ends.items()}
    found = ((each, first.get((each.place, at), last.get(each.place, 0))) for each, at in since.items())
    return by_group(found), problems


def _since(moved: ExportedOffset) -> int:
    if moved.timed is None:
        raise UsageError("The file has no timestamps of records. Create it with 'offsets export --with-times'")
    return moved.timed.since_ms


def _read_again(change: Change, timed: RecordTime | None) -> int | None:
    """Return how many records the group reads again in this cluster.

    Return None if this log does not have them yet.
    """
    back = max(-(change.distance or 0), 0)
    if timed is None or change.new is None or change.log_end is None:
        return back
    here = change.log_end - (change.new.offset or 0)
    if timed.read_again and not here:
        return None  # the copy lags behind
    return max(min(timed.read_again, here), back)
