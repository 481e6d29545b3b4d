"""How old an answer about now is: the line before it, and what its rows carry of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from offsetstream.cli.rows import Column
from offsetstream.cli.tell import tell
from offsetstream.cli.times import duration_text, instant_text
from offsetstream.errors import NoTableError
from offsetstream.tables.placement import read_placement

if TYPE_CHECKING:
    from offsetstream.tables.store import Store
    from offsetstream.views.reader import ViewReader

T = TypeVar("T")
STALE = 5  # the exit code where nothing known is wrong, and something is not known any more
AGE = (Column("as_of"), Column("stale"))  # not in text: there the line before the answer has it
_CLOCKS_DIFFER = timedelta(seconds=5)
_READ = """
SELECT f.offsets_partition, as_of, is_stale,
       CASE WHEN blocked_since <= now_at - INTERVAL 1 MINUTE THEN blocked_since END,
       history_complete_from, now_at, (SELECT max(ended_at) FROM cluster), max_age_seconds
FROM clock CROSS JOIN max_age LEFT JOIN freshness AS f ON true
LEFT JOIN offsets_partitions AS p ON p.offsets_partition = f.offsets_partition"""


@dataclass(frozen=True)
class Age:
    """As of when each offsets partition is known; `now` is the instant that is asked about.

    `blocked_since`: since when an open transaction blocks a partition, where it does so for a minute or longer.
    `complete_from`: since when its history is complete, None where there is none.
    """

    now: datetime
    of_partition: Mapping[int, tuple[datetime | None, bool]]
    ended_at: datetime | None
    max_age: float | None = None  # in seconds
    blocked_since: Mapping[int, datetime] = field(default_factory=dict)
    complete_from: Mapping[int, datetime | None] = field(default_factory=dict)

    @classmethod
    def of(cls, reader: ViewReader) -> Age:
        """Read it from the views; raises what they do."""
        reader.relation("freshness")
        rows = reader.fetch(_READ)
        now, ended_at, max_age = rows[0][5:]
        found = {number: told for number, *told in rows if number is not None}
        known = {number: (as_of, is_stale) for number, (as_of, is_stale, *_) in found.items()}
        held = {number: since for number, (_, _, since, *_) in found.items() if since is not None}
        return cls(now, known, ended_at, max_age, held, {number: told[3] for number, told in found.items()})

    @classmethod
    def of_tables(cls, tables: Store, max_age: float | None) -> Age:
        """Read it for a command that asks no view; a table that somebody deleted makes the age unknown, and says so."""
        from offsetstream.cli.answers import view_reader  # noqa: PLC0415 - of DuckDB, which --help does not need

        try:
            return cls.of(view_reader(tables, max_age))
        except NoTableError as error:
            tell(f"How old this is nobody can tell: {error}", fg="red")
            return cls(datetime.now(UTC), {}, None)

    def columns(self, part: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
        """Return columns with those of AGE, by the offsets partition of each row."""
        found = [self._of(number) for number in part["offsets_partition"]]
        return {**part, "as_of": [each[0] for each in found], "stale": [each[1] for each in found]}

    def row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row with the columns of AGE."""
        as_of, is_stale = self._of(row["offsets_partition"])
        return {**row, "as_of": as_of, "stale": is_stale}

    def _of(self, number: int | None) -> tuple[str | None, bool | None]:
        as_of, is_stale = self.of_partition.get(-1 if number is None else number, (None, None))
        return None if as_of is None else instant_text(min(as_of, self.now)), is_stale

    def until(self, end: datetime | None) -> Age:
        """Return the same of a period that ends then, None: now. Whether somebody looked later is not asked."""
        if end is None:
            return self
        allowed = timedelta(seconds=self.max_age or 0)
        known = {
            number: (as_of, is_stale and (as_of is None or as_of + allowed < end))
            for number, (as_of, is_stale) in self.of_partition.items()
        }
        held = {number: since for number, since in self.blocked_since.items() if since < end}
        return replace(self, of_partition=known, blocked_since=held)

    def tell_of_groups(self, tables: Store, groups: Collection[str]) -> None:
        """Write to stderr, in red, what is not known of some groups, of all where none is named."""
        for line in self.lines_of_groups(tables, groups):
            tell(line, fg="red")

    def lines_of_groups(self, tables: Store, groups: Collection[str], since: datetime | None = None) -> list[str]:
        """Return the same as lines, and from when on their history is known, where that is later than `since`.

        Where the groups lie is read if there is something to say.
        """
        from offsetstream.tables.lookup import Lookup  # noqa: PLC0415 - of DuckDB, which --help does not need

        is_asked = bool(groups) and bool(self.lines() or self._history_lines(since, None))
        placement = read_placement(Lookup(tables)) if is_asked else None
        homes = [] if placement is None else [placement.of(name) for name in groups]
        asked = None if placement is None else {number for number in homes if number is not None}
        return self.lines(asked) + self._history_lines(since, asked)

    def tell(self, partitions: Collection[int] | None = None) -> None:
        """Write to stderr, in red, what is not known of now, if anything; of these offsets partitions, None: of all."""
        for line in self.lines(partitions):
            tell(line, fg="red")

    def lines_of(self, rows: Iterable[Mapping[str, Any]]) -> list[str]:
        """Return the lines of the rows' offsets partitions; of all where there are no rows."""
        return self.lines({row["offsets_partition"] for row in rows} or None)

    def lines(self, partitions: Collection[int] | None = None) -> list[str]:
        """Return the same as lines."""
        if self.ended_at is not None:
            told = [f"No job keeps these tables any more: their now is {instant_text(self.ended_at)}, when they end"]
        else:
            told = self._stale_lines(partitions)
        return told + self._blocked_lines(partitions)

    def _stale_lines(self, partitions: Collection[int] | None) -> list[str]:
        asked, told = _some(self.of_partition, partitions), []
        looked = [as_of for as_of, _ in self.of_partition.values() if as_of is not None]
        ahead = max(looked, default=self.now) - datetime.now(UTC)
        if ahead > _CLOCKS_DIFFER:
            behind = duration_text(ahead.total_seconds() * 1000)
            told.append(f"This machine's clock is {behind} behind that of the job: all ages are too low by that")
        stale = [as_of for as_of, is_stale in asked if is_stale]
        if stale:
            told.append(self._stale_line(stale, len(asked)))
        return told

    def _blocked_lines(self, partitions: Collection[int] | None) -> list[str]:
        held = _some(self.blocked_since, partitions)
        if not held:
            return []
        asked, since = len(_some(self.of_partition, partitions)), instant_text(min(held))
        return [
            f"BLOCKED: of {len(held)} of {asked} offsets partitions nothing is known since {since}: "
            "an open transaction is there, and nobody can read what came after"
        ]

    def _history_lines(self, since: datetime | None, partitions: Collection[int] | None) -> list[str]:
        if since is None:
            return []
        asked = _some(self.complete_from, partitions)
        late = [each for each in asked if each is None or each > since]
        if not late:
            return []
        known = [each for each in late if each is not None]
        of_some = f"Of {len(late)} of {len(asked)} offsets partitions "
        if not known:
            return [of_some + "no history is known to be complete: more may have happened than is told"]
        return [f"{of_some}the history is complete from {instant_text(max(known))} on: more may have happened before"]

    def _stale_line(self, stale: list[datetime | None], asked: int) -> str:
        known = [as_of for as_of in stale if as_of is not None]
        is_of_all = len(stale) == asked
        of_some = "" if is_of_all else f"of {len(stale)} of {asked} offsets partitions "
        if len(known) < len(stale):
            return f"STALE: {of_some}nothing is known yet"
        oldest = min(known)
        age = duration_text((self.now - oldest).total_seconds() * 1000)
        do = "is the job running?" if is_of_all else "'offsetstream partitions' shows which"
        return f"STALE: {of_some}nothing is known of the last {age}, since {instant_text(oldest)}: {do}"


def _some(told: Mapping[int, T], partitions: Collection[int] | None) -> list[T]:
    """Return what is told of some offsets partitions, None: of all."""
    return [each for number, each in told.items() if partitions is None or number in partitions]
