"""As of when the data of an answer are known: in words, as warnings, and as columns of its rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from offsetstream.cli.output import Column
from offsetstream.cli.text import capitalized, counted, instant_text, length_text
from offsetstream.errors import NoTableError
from offsetstream.tables.names import OWNED
from offsetstream.tables.placement import Placement, read_placement

if TYPE_CHECKING:
    from offsetstream.tables.store import Store
    from offsetstream.views.reader import ViewReader

T = TypeVar("T")
NOT_OK = 4  # exit code: a group has trouble
STALE = 5  # exit code: no group has trouble, but the data of a group are too old to tell
AGE = (Column("as_of", unit="time"), Column("stale", of="is_stale"))  # not in text, where the closing line has the age
_CLOCKS_DIFFER = timedelta(seconds=5)
_DEFAULT_TRIGGER = timedelta(seconds=10)  # of the job; also used for jobs that ran once
_NOTHING_LOADED = "No offsets partition is known yet: the job has not started to load them"
_READ = """
SELECT f.offsets_partition, as_of, is_stale,
       CASE WHEN blocked_since <= now_at - INTERVAL 1 MINUTE THEN blocked_since END,
       history_complete_from, now_at, (SELECT max(ended_at) FROM cluster), max_age_seconds,
       (SELECT max(sample_interval_ms) FROM cluster), p.load_state
FROM clock CROSS JOIN max_age LEFT JOIN freshness AS f ON true
LEFT JOIN offsets_partitions AS p ON p.offsets_partition = f.offsets_partition"""


@dataclass(frozen=True)
class Age:
    """As of when each offsets partition is known, at the time `now` that the question is about.

    All mappings are by offsets partition. `by_partition`: as of when it is known (None: never read), and whether that
    is stale. `ended_at`: when a job last kept the tables, None while one does. `max_age`: in seconds. `blocked_since`:
    only partitions that an open transaction has blocked for a minute. `complete_from`: the start of the complete
    history, None if there is none. `load_states`: as in `offsets_partitions`. `trigger`: the job's interval, or the
    default interval for a job that ran once. `problem`: why the age is unknown.
    """

    now: datetime
    by_partition: Mapping[int, tuple[datetime | None, bool]]
    ended_at: datetime | None
    max_age: float | None = None
    blocked_since: Mapping[int, datetime] = field(default_factory=dict)
    complete_from: Mapping[int, datetime | None] = field(default_factory=dict)
    load_states: Mapping[int, str | None] = field(default_factory=dict)
    trigger: timedelta = _DEFAULT_TRIGGER
    problem: str | None = None

    @classmethod
    def of(cls, reader: ViewReader) -> Age:
        """Read the age from the views; raises what they raise. If a table is missing, the age is unknown."""
        try:
            reader.relation("freshness")
        except NoTableError as error:
            return cls(datetime.now(UTC), {}, None, problem=str(error))
        rows = reader.fetch(_READ)
        now, ended_at, max_age, trigger_ms = rows[0][5:9]
        states = {number: state for number, *state in rows if number is not None}
        return cls(
            now,
            {number: (as_of, is_stale) for number, (as_of, is_stale, *_) in states.items()},
            ended_at,
            max_age,
            {number: since for number, (_, _, since, *_) in states.items() if since is not None},
            {number: state[3] for number, state in states.items()},
            {number: state[-1] for number, state in states.items()},
            _DEFAULT_TRIGGER if trigger_ms is None else timedelta(milliseconds=trigger_ms),
        )

    def as_of_text(
        self, tables: Store, groups: Collection[str] = (), *, until: datetime | None = None, note: str = ""
    ) -> str:
        """Return as of when the data behind an answer are known: the oldest of the offsets partitions it read.

        These are the partitions of the `groups`, or all if none is named. While the data are no older than the job's
        interval, the text is "as of <time>", else "data as of <time> (33 s old)". For a period that ended at `until`,
        the age is relative to its end, so that the text stays the same; it is empty if the data reach that far.
        `note` follows the age of old data.
        """
        return self._as_of_text(self._times(tables, groups), until, note)

    def _as_of_text(self, times: list[datetime | None], until: datetime | None = None, note: str = "") -> str:
        known = [as_of for as_of in times if as_of is not None]
        if not known:
            return "no offsets partition was read yet" if times else "data age unknown"
        oldest, never_read = min(*known, self.now), len(times) - len(known)
        unread = f", but {never_read} of {len(times)} offsets partitions {_was(never_read)} never read"
        if until is not None and until <= oldest:
            return unread.removeprefix(", ") if never_read else ""
        if until is not None and until <= self.now:
            text = (
                f"data as of {instant_text(oldest)} ({length_text(until - oldest)} before the end of the period{note})"
            )
        elif self.now - oldest <= self.trigger:
            text = f"as of {instant_text(oldest)}"
        else:
            text = f"data as of {instant_text(oldest)} ({length_text(self.now - oldest)} old{note})"
        return text + (unread if never_read else "")

    def line_if_old(self, tables: Store, groups: Collection[str] = ()) -> str | None:
        """Return the closing line of an answer in the layout of Kafka's tool: None while the data are fresh."""
        times = self._times(tables, groups)
        is_known = any(as_of is not None for as_of in times)
        return f"{capitalized(self._as_of_text(times))}." if is_known and any(map(self._is_old, times)) else None

    def _times(self, tables: Store, groups: Collection[str]) -> list[datetime | None]:
        """Return as of when the offsets partitions of the groups are known; of all, if none is named or all are new."""
        times = [as_of for as_of, _ in self.by_partition.values()]
        if groups and any(map(self._is_old, times)):
            homes = self._homes(tables, groups) & self.by_partition.keys()
            times = [as_of for as_of, _ in _selected(self.by_partition, homes or None)]
        return times

    def _is_old(self, as_of: datetime | None) -> bool:
        return as_of is None or self.now - as_of > self.trigger

    def columns(self, part: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
        """Return columns of rows, with those of AGE by the offsets partition of each row."""
        known = [self.by_partition.get(-1 if number is None else number) for number in part["offsets_partition"]]
        times = [min(each[0], self.now) if each and each[0] else None for each in known]
        return {**part, "as_of": times, "is_stale": [each and each[1] for each in known]}

    def until(self, end: datetime | None) -> Age:
        """Return the age of a period that ends at `end` (None: now): data that reach the end are not stale."""
        if end is None:
            return self
        allowed = timedelta(seconds=self.max_age or 0)
        by_partition = {
            number: (as_of, is_stale and (as_of is None or as_of + allowed < end))
            for number, (as_of, is_stale) in self.by_partition.items()
        }
        blocked = {number: since for number, since in self.blocked_since.items() if since < end}
        return replace(self, by_partition=by_partition, blocked_since=blocked)

    def warnings_for_groups(self, tables: Store, groups: Collection[str], since: datetime | None = None) -> list[str]:
        """Return warnings about the offsets partitions of some groups; about all if no group is named.

        They say what is not known now, and from when on the history is complete if that is later than `since`.
        """
        partitions = None
        if groups and (self.lines() or self._history_lines(since, None)):
            partitions = self._homes(tables, groups)
        return self.lines(partitions) + self._period_lines(since) + self._history_lines(since, partitions)

    @staticmethod
    def _homes(tables: Store, groups: Collection[str]) -> set[int]:
        """Return the offsets partitions of groups, as far as the tables know them."""
        placement = _placement(tables)
        return {number for number in map(placement.of, groups) if number is not None}

    def loading_lines(self, tables: Store, groups: Collection[str]) -> list[str]:
        """Return lines unless all offsets partitions are loaded: how many are, and whether those of the groups are."""
        loaded, number = sum(state == OWNED for state in self.load_states.values()), len(self.load_states)
        if loaded == number or self.problem:
            return [] if number or self.problem else [_NOTHING_LOADED]
        lines = [f"{loaded} of {counted(number, 'offsets partition')} {'is' if loaded == 1 else 'are'} loaded"]
        placement = _placement(tables) if groups else Placement(0)
        for group_id in groups:
            partition = placement.of(group_id)
            if partition is None:
                lines.append(f"The offsets partition of group '{group_id}' is unknown")
                continue
            state = self.load_states.get(partition) or "unknown"
            is_loaded = "loaded" if state == OWNED else f"not loaded ({state})"
            lines.append(f"Offsets partition {partition} of group '{group_id}' is {is_loaded}")
        return lines

    def lines_of(self, rows: Iterable[Mapping[str, Any]]) -> list[str]:
        """Return the warnings about the offsets partitions of rows; about all if there are no rows."""
        return self.lines({row["offsets_partition"] for row in rows} or None)

    def lines(self, partitions: Collection[int] | None = None) -> list[str]:
        """Return warnings: what is not known now of these offsets partitions (None: of all)."""
        if self.problem is not None:
            return [f"The age of the data is unknown: {self.problem}"]
        if self.ended_at is not None:
            ended = f"No job updates these tables any more: they end at {instant_text(self.ended_at)}"
            return [f"{ended}, and 'now' means that time", *self._blocked_lines(partitions)]
        return self._stale_lines(partitions) + self._blocked_lines(partitions)

    def _stale_lines(self, partitions: Collection[int] | None) -> list[str]:
        selected, lines = _selected(self.by_partition, partitions), []
        known = [as_of for as_of, _ in self.by_partition.values() if as_of is not None]
        ahead = max(known, default=self.now) - datetime.now(UTC)
        if ahead > _CLOCKS_DIFFER:
            lines.append(
                f"This machine's clock is {length_text(ahead)} behind the job's clock: all ages are too low by that"
            )
        stale = [as_of for as_of, is_stale in selected if is_stale]
        if stale:
            lines.append(self._stale_line(stale, len(selected)))
        return lines

    def _stale_line(self, stale: list[datetime | None], total: int) -> str:
        known = [as_of for as_of in stale if as_of is not None]
        is_all = len(stale) == total
        for_some = "" if is_all else f" of {len(stale)} of {total} offsets partitions"
        if len(known) < len(stale):
            return f"STALE: nothing is known yet{for_some}"
        oldest = min(known)
        hint = "is the job running?" if is_all else "'offsetstream partitions' shows which"
        return (
            f"STALE: nothing is known of the last {length_text(self.now - oldest)}, "
            f"since {instant_text(oldest)}{for_some and ',' + for_some}: {hint}"
        )

    def _blocked_lines(self, partitions: Collection[int] | None) -> list[str]:
        blocked = _selected(self.blocked_since, partitions)
        if not blocked:
            return []
        total = len(_selected(self.by_partition, partitions))
        return [
            f"BLOCKED: an open transaction blocks {len(blocked)} of {counted(total, 'offsets partition')} since "
            f"{instant_text(min(blocked))}: nobody can read later records until it ends"
        ]

    def _period_lines(self, since: datetime | None) -> list[str]:
        if since is None or self.ended_at is None or since < self.ended_at:
            return []
        earlier = instant_text(self.ended_at - timedelta(hours=1))
        return [f"The period begins after their end, so nothing is known of it: give --since {earlier} or earlier"]

    def _history_lines(self, since: datetime | None, partitions: Collection[int] | None) -> list[str]:
        if since is None:
            return []
        selected = _selected(self.complete_from, partitions)
        late = [start for start in selected if start is None or start > since]
        if not late:
            return []
        known = [start for start in late if start is not None]
        for_some = f"of {len(late)} of {counted(len(selected), 'offsets partition')}"
        if not known:
            return [f"The history {for_some} may be incomplete: more may have happened than this answer shows"]
        start = instant_text(max(known))
        return [f"The history {for_some} is complete only from {start} on: more may have happened before"]


def _placement(tables: Store) -> Placement:
    from offsetstream.tables.lookup import Lookup

    return read_placement(Lookup(tables))


def _selected(by_partition: Mapping[int, T], partitions: Collection[int] | None) -> list[T]:
    """Return the values of some offsets partitions, or of all (None)."""
    return [value for number, value in by_partition.items() if partitions is None or number in partitions]


def _was(number: int) -> str:
    return "was" if number == 1 else "were"
