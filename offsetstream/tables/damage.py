"""Lost and damaged files of a table: which tables the job makes anew by itself, and how to say what is damaged."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from offsetstream.errors import DamagedTableError, UsageError, text_with_cause
from offsetstream.tables.names import (
    CLUSTER,
    DECODED_LOGS,
    DECODED_TABLES,
    JOB_LEASE,
    LEDGER,
    OFFSETS_PARTITIONS,
    STATE_TABLES,
    TOPIC_PARTITIONS,
)
from offsetstream.tables.schema import all_schemas

if TYPE_CHECKING:
    import pyarrow as pa

    from offsetstream.tables.schema import TableSchema
    from offsetstream.tables.store import Store

# Tables that the job can fill again: from the topic, from the history, or by a new look at the cluster.
MADE_ANEW = frozenset(
    {
        *STATE_TABLES,
        OFFSETS_PARTITIONS,
        JOB_LEASE,
        LEDGER,
        *DECODED_TABLES,
        DECODED_LOGS,
        TOPIC_PARTITIONS,
        CLUSTER,
    }
)
# Without the ledger nobody can tell which rows a history lost before. So a person decides about it.
HEALED_BY_JOB = MADE_ANEW - {LEDGER}
# How Spark, DuckDB and Arrow name a file of a table: the folder of all tables, and the table.
_FILE = re.compile(
    r"((?:/|[a-z][a-z0-9+.-]*:/|(?<=for file ))(?:(?!: )[^'\"\n])*?)/(\w+)"
    r"(?:/(?:written_day=[^/\s]+/)?[^/\s'\"]+\.parquet|/_delta_log\b| is damaged: )"
)
_FILE_SCHEME = re.compile("file:/+")


class Damage(NamedTuple):
    """A damaged file of a table, relative to the table's folder. `rows`: how many it had by Delta's log, if known."""

    file: str
    what: str
    rows: int | None = None

    def __str__(self) -> str:
        return f"{self.file} {self.what}"


class TableFolder(ABC):
    """The files of one table, for repair. Nothing is deleted: damaged files move to a folder beside the tables."""

    @abstractmethod
    def damage(self) -> list[Damage]:
        """Return what is damaged: every page of every data file is read.

        If Delta's log is damaged, the data files are not read: it has their names.
        """

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


def damage_in(error: BaseException, store: Store | None = None) -> DamagedTableError | None:
    """Return an error that names the damaged file, if `error`, or its cause, speaks of a table that is damaged.

    `store`: the tables, if they are known; else the error tells where they are.
    """
    from offsetstream.tables.location import store_at  # noqa: PLC0415 - rarely needed

    if isinstance(error, DamagedTableError):
        return error
    for root, name in _FILE.findall(text_with_cause(error)):
        if name in all_schemas():
            with suppress(UsageError):
                damaged = damaged_table(store or store_at(_place(root)), name)
                if damaged is not None:
                    return damaged
    return None


def require_whole_logs(store: Store) -> None:
    """Raise DamagedTableError if the last entry of a log is empty, as a crash of the machine may leave it.

    Readers take it for a commit that changes nothing. All other damage they notice.
    """
    for name in all_schemas():
        folder = store.folder(name)
        if folder is not None and (damage := folder.empty_entry()) is not None:
            raise DamagedTableError(name, f"{store.name}/{name}", str(damage), store.name)


def _place(root: str) -> str:
    root = _FILE_SCHEME.sub("/", root)
    return root if root.startswith("/") or ":/" in root else f"/{root}"  # DataFusion leaves out the first slash


def damaged_table(store: Store, name: str) -> DamagedTableError | None:
    """Return an error that names the first damaged file of a table; None if no file is, or if nobody can tell."""
    with suppress(Exception):  # each store has its own errors; the one that led here is told then
        folder = store.folder(name)
        for damage in folder.damage() if folder is not None else ():
            return DamagedTableError(name, f"{store.name}/{name}", str(damage), store.name)
    return None
