"""A difference between the tables and the cluster, the records, the ledger or the topic: of a value or a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Row = Mapping[str, Any]
Key = tuple[Any, ...]
ROW = "row"  # column of a difference where one side lacks the row
ROWS = "rows"  # column of a difference in the number of rows with the key
CLUSTER, RECORDS, OF_LEDGER, TOPIC = "cluster", "records", "ledger", "topic"


@dataclass(frozen=True)
class Difference:
    """One difference. `names` are the columns of the row's key; `other` is the value in `against`.

    If one side lacks the row, True marks the side that has it.
    """

    table: str
    names: tuple[str, ...]
    key: Key
    column: str
    in_tables: Any
    other: Any
    against: str = CLUSTER

    @property
    def group_id(self) -> str | None:
        """Group id of the row; None if the row belongs to no group."""
        return self.value_of("group_id")

    @property
    def is_only_in_tables(self) -> bool:
        """Whether the tables have a row that the cluster did not return."""
        return self.against == CLUSTER and self.column == ROW and bool(self.in_tables)

    def value_of(self, name: str) -> Any | None:
        """Return the value of a column of the row's key, None if the key has no such column."""
        return self.key[self.names.index(name)] if name in self.names else None

    def __str__(self) -> str:
        places = zip(self.names, self.key, strict=True)
        row = ", ".join(f"{name} {value!r}" for name, value in places if value is not None)
        if self.column == ROW:
            return f"{self.table}: {row}: only in the {'tables' if self.in_tables else self.against}"
        values = f"{plain(self.in_tables)!r} in the tables, {plain(self.other)!r} in the {self.against}"
        return f"{self.table}: {row}: {self.column} is {values}"


def plain(value: Any) -> Any:
    """Return the value for print and JSON: a time becomes ISO 8601 text."""
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z") if isinstance(value, datetime) else value


def row_differences(
    table: str, names: tuple[str, ...], in_tables: Iterable[Row], other: Iterable[Row], against: str = CLUSTER
) -> tuple[list[Difference], list[tuple[Key, Row, Row]]]:
    """Pair rows by key. Return the differences in presence or number of rows, and the pairs."""
    ours, our_counts = _by_key(names, in_tables)
    theirs, their_counts = _by_key(names, other)
    both = ours.keys() & theirs.keys()
    alone = [
        Difference(table, names, key, ROW, key in ours, key in theirs, against) for key in ours.keys() ^ theirs.keys()
    ]
    counts = [(key, our_counts[key], their_counts[key]) for key in both]
    doubled = [
        Difference(table, names, key, ROWS, ours, theirs, against) for key, ours, theirs in counts if ours != theirs
    ]
    return [*alone, *doubled], [(key, ours[key], theirs[key]) for key in both]


def lasting(find: Callable[[], Iterable[Difference]]) -> list[Difference]:
    """Return the differences that are found twice: those that a running job just makes are gone at the second look."""
    found = set(find())
    return [each for each in find() if each in found] if found else []


def _by_key(names: tuple[str, ...], rows: Iterable[Row]) -> tuple[dict[Key, Row], Counter[Key]]:
    placed = [(tuple(row[name] for name in names), row) for row in rows]
    return dict(placed), Counter(key for key, _ in placed)


def value_differences(
    table: str,
    names: tuple[str, ...],
    pairs: Iterable[tuple[Key, Row, Row]],
    columns: Sequence[str],
    against: str = RECORDS,
) -> Iterator[Difference]:
    """Yield the columns in which paired rows differ."""
    for key, ours, theirs in pairs:
        for column in columns:
            if ours[column] != theirs[column]:
                yield Difference(table, names, key, column, ours[column], theirs[column], against)
