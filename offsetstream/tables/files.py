"""The files of a table: compaction, clean-up, and repair."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, NamedTuple

from offsetstream.errors import DamagedTableError
from offsetstream.tables.schema import TableSchema

if TYPE_CHECKING:
    import pyarrow as pa

MIB = 1024 * 1024
# Today's files are compacted in two steps, so that a row is rewritten a few times only, not at each compaction.
OPEN_FILE_BYTES, CLOSED_FILE_BYTES = 16 * MIB, 128 * MIB


@dataclass(frozen=True)
class SmallFiles:
    """A set of small files to compact: the files of one day of a history, or of a complete state table (`day` None)."""

    day: date | None
    files: int
    target_bytes: int
    is_closed: bool  # no new rows come


def small_files_of(day: date | None, files: int, today: date) -> SmallFiles:
    """Return the set of `files` files of a day, or of a complete state table."""
    is_closed = day is None or day < today
    return SmallFiles(day, files, CLOSED_FILE_BYTES if is_closed else OPEN_FILE_BYTES, is_closed)


def compaction_order(small_files: Iterable[SmallFiles], today: date) -> list[SmallFiles]:
    """Return the sets with at least two files, closed days last."""
    found = (crowd for crowd in small_files if crowd.files > 1)
    return sorted(found, key=lambda crowd: (crowd.is_closed, crowd.day or today))


@dataclass(frozen=True)
class CurrentFiles:
    """Number of data files of a table's current version, and their bytes."""

    files: int
    bytes: int


@dataclass(frozen=True)
class StoredFiles:
    """Number of stored data files and log files of a table, and the bytes of all; includes files no longer used."""

    files: int
    log_files: int
    bytes: int


class TableFiles(ABC):
    """The files of a table at the version that was opened."""

    @abstractmethod
    def small_files(self) -> list[SmallFiles]:
        """Return the sets of at least two files that are smaller than half of their target, closed days last."""

    @abstractmethod
    def compact(self, crowd: SmallFiles) -> None:
        """Compact its files; ConflictError if another write removed one meanwhile."""

    @abstractmethod
    def clear(self) -> None:
        """Delete data files that no version within the table's retention uses, and older log files."""

    @abstractmethod
    def removable(self) -> set[str]:
        """Return the names of the data files that `clear` would delete."""

    @abstractmethod
    def present(self) -> CurrentFiles:
        """Return number and bytes of the current data files."""

    @abstractmethod
    def stored(self, without: Collection[str] = ()) -> StoredFiles:
        """Return number and bytes of all stored files, except data files with the names in `without`."""

    @abstractmethod
    def lost(self) -> list[str]:
        """Return the data files that the table names but that do not exist."""


class Damage(NamedTuple):
    """A damaged file of a table, relative to the table's folder. `rows`: how many it had by Delta's log, if known."""

    file: str
    what: str
    rows: int | None = None

    def __str__(self) -> str:
        return f"{self.file} {self.what}"


class TableFolder(ABC):
    """The files of one table, for repair. Nothing is deleted: damaged files move to a folder beside the tables.

    `root` is the name of the tables, `name` that of the table.
    """

    root: str
    name: str

    @abstractmethod
    def damage(self) -> list[Damage]:
        """Return what is damaged: every page of every data file is read.

        If Delta's log is damaged, the data files are not read: it has their names.
        """

    def damaged(self) -> DamagedTableError | None:
        """Return an error that names the first damaged file; None if no file is damaged."""
        return next(map(self.error_of, self.damage()), None)

    def error_of(self, damage: Damage) -> DamagedTableError:
        """Return the error that names the damage."""
        return DamagedTableError(self.name, f"{self.root}/{self.name}", str(damage), self.root)

    @abstractmethod
    def empty_entry(self) -> Damage | None:
        """Return the last entry of Delta's log if it is empty; always None in an object store."""

    @abstractmethod
    def mend(self) -> bool:
        """Remove what is damaged from the table. Return False, and change nothing, if Delta's log is lost.

        A damaged last entry of the log is removed: the table is then that of the version before.
        """

    @abstractmethod
    def set_aside(self) -> str:
        """Move the whole table away, so that it no longer exists; return the new place."""

    @property
    @abstractmethod
    def is_aside(self) -> bool:
        """Whether files of this table were moved away."""

    @abstractmethod
    def salvaged(self, schema: TableSchema) -> Iterator[pa.Table]:
        """Return each row of a history once, from all of its readable data files that were moved away."""


@dataclass(frozen=True)
class NewFile:
    """A written file that no commit has added to the table yet.

    `path` is relative to the table. `day` is the day of a history's rows.
    """

    path: str
    day: str | None
    size: int
    statistics: str
