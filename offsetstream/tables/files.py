"""The files behind a table: what keeps them few, and those that Spark's tasks write for a load."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any

from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.transaction import BatchId, is_done, transaction_of

if TYPE_CHECKING:
    import pyarrow as pa

    from offsetstream.tables.store import Store


MIB = 1024 * 1024
# A day that is written to is compacted in steps, so that a row is written a few times, not with each step again.
OPEN_FILE_BYTES, CLOSED_FILE_BYTES = 16 * MIB, 128 * MIB


@dataclass(frozen=True)
class Crowd:
    """Small files that are better put together: of a day of a history, or of a whole state table."""

    day: date | None
    files: int
    target_bytes: int
    is_closed: bool  # nobody writes to it any more


def crowd_of(day: date | None, files: int, today: date) -> Crowd:
    """Return so many files of a day, or of a whole state table."""
    is_closed = day is None or day < today
    return Crowd(day, files, CLOSED_FILE_BYTES if is_closed else OPEN_FILE_BYTES, is_closed)


def in_turn(crowds: Iterable[Crowd], today: date) -> list[Crowd]:
    """Return those of at least two files, closed days last."""
    found = (crowd for crowd in crowds if crowd.files > 1)
    return sorted(found, key=lambda crowd: (crowd.is_closed, crowd.day or today))


@dataclass(frozen=True)
class Present:
    """The data files of a table's present version, and their bytes."""

    files: int
    bytes: int


@dataclass(frozen=True)
class Stored:
    """What lies there for a table: data files, those of its log, and all their bytes; dead files too."""

    files: int
    log_files: int
    bytes: int


class TableFiles(ABC):
    """The files of a table as it was when it was opened."""

    @abstractmethod
    def crowds(self) -> list[Crowd]:
        """Return where there are at least two files that are less than half of what they might be, closed days last."""

    @abstractmethod
    def compact(self, crowd: Crowd) -> None:
        """Put its files together; ConflictError where another write took them away meanwhile."""

    @abstractmethod
    def clear(self) -> None:
        """Delete the files that no version within the table's retention has, and the log before it."""

    @abstractmethod
    def removable(self) -> set[str]:
        """Return the names of the data files that `clear` would delete."""

    @abstractmethod
    def present(self) -> Present:
        """Return what the table is made of."""

    @abstractmethod
    def stored(self, without: Collection[str] = ()) -> Stored:
        """Return what lies there, but for data files of the given names."""

    @abstractmethod
    def lost(self) -> list[str]:
        """Return the data files that the table has, and that are not there."""


@dataclass(frozen=True)
class NewFile:
    """A file of rows that is not the table's yet; `path` is the store's own, `counted` for the ledger.

    `day` is that of a history's rows.
    """

    path: str
    day: str | None
    size: int
    statistics: str
    counted: list[dict[str, Any]] = field(default_factory=list)


class TaskWriter(ABC):
    """Writes rows of a history in a task of Spark's, which it is pickled for; they are the table's with a commit."""

    @abstractmethod
    def write(self, rows: pa.Table) -> None:
        """Append rows; they have all columns but the three that say who wrote them."""

    @abstractmethod
    def close(self) -> NewFile | None:
        """Finish; None if there were no rows."""


@again_on_conflict
def append_files(tables: Store, name: str, files: Sequence[NewFile], batch: BatchId) -> None:
    """Give the files to the history table in one commit, once per batch; TablesError if they are not there."""
    table = tables.open(name)
    if files and not is_done(table, batch):
        table.append_files(files, transaction_of(table, batch))
