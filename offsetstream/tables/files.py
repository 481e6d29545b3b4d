"""The files of a table: compaction and clean-up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import date

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


@dataclass(frozen=True)
class NewFile:
    """A written file that no commit has added to the table yet.

    `path` is relative to the table. `day` is the day of a history's rows.
    """

    path: str
    day: str | None
    size: int
    statistics: str
