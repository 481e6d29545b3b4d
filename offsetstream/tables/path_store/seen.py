"""What a job knows of its tables' folder. So it reads no log that it wrote itself.

An opened table stays open, and follows the job's own commits. On a disk, two looks at the log show whether it is still
the newest; an object store would take a request for each, so there only the next write shows another's commit, by its
conflict.

A job must neither write into an older copy nor into a folder that is away. If it wrote on into an older copy, the
copy's log would have a gap. And what it wrote into the place of a folder would stand in the way when that comes back.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deltalake import DeltaTable

from offsetstream.errors import ConflictError, NoTableError, OlderCopyError, StoreFaultError, TablesError
from offsetstream.settings.places import is_remote
from offsetstream.tables.names import JOB_LEASE
from offsetstream.tables.path_store.errors import translated_errors
from offsetstream.tables.path_store.group_files import GroupFiles
from offsetstream.tables.store import Transaction


@dataclass(frozen=True)
class _Transactions:
    """The last versions of transactions by their ids, as far as somebody asked, at a version of a table with an id."""

    at: tuple[str, int]
    versions: dict[str, int | None] = field(default_factory=dict)


class SeenTables:
    """The tables of the folder `root` that one process opened, with their greatest versions. Threads may share it."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._is_remote = is_remote(root)
        self._versions: dict[tuple[str, str], int] = {}  # by the table's name and id: one made anew has another id
        self._open_tables: dict[str, DeltaTable] = {}
        self._files: dict[str, GroupFiles] = {}
        self._transactions: dict[str, _Transactions] = {}
        self._turns: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def opened(self, name: str) -> DeltaTable:
        """Return a table that other users may move to newer versions. Raises what `looked_up` raises."""
        with self._lock:
            table = self._open_tables.get(name)
        if table is not None and (self._is_remote or self._is_newest(name, table.version())):
            return table
        return self.looked_up(name)

    def looked_up(self, name: str) -> DeltaTable:
        """Open a table anew. Raises OlderCopyError, NoTableError, and StoreFaultError if the folder is away."""
        table = self._looked_up(name)
        with self._lock:
            self._open_tables[name] = table
        return table

    def _looked_up(self, name: str) -> DeltaTable:
        self.close(name)
        try:
            table = self._open(name)
        except NoTableError:
            self._require_folder()
            raise
        # An older one is no copy if another thread saw a newer one while this one opened it: so look again.
        before = self.note(name, table, table.version())
        if before > table.version() and before > (table := self._open(name)).version():
            raise OlderCopyError(
                f"the table {table.table_uri} went back from version {before} to {table.version()}: an older copy took "
                "its place while the job ran. Start the job again: it continues where the copy ends"
            )
        return table

    def refreshed(self, name: str, table: DeltaTable) -> DeltaTable:
        """Move an opened table to its current version. Raises what `opened` raises."""
        if not self._is_remote and not self._has_version(name, table.version()):
            return self.looked_up(name)
        before = self.note(name, table, table.version())
        try:
            with translated_errors(table.table_uri):
                table.update_incremental()
        except TablesError:  # delta-rs can say no more than that the log lacks this version
            self.looked_up(name)
            raise
        return table if table.version() >= before else self.looked_up(name)

    def transaction_version(self, name: str, table: DeltaTable, app_id: str) -> int | None:
        """Return the version of the table's last transaction with this id; delta-rs reads the log to find one."""
        at = str(table.metadata().id), table.version()
        with self._lock:
            known = self._transactions.get(name)
            if known is None or known.at != at:
                known = self._transactions[name] = _Transactions(at)
        if app_id not in known.versions:
            with translated_errors(table.table_uri):
                known.versions[app_id] = table.transaction_version(app_id)
        return known.versions[app_id]

    def committed(self, name: str, table: DeltaTable, before: int, transactions: Sequence[Transaction]) -> None:
        """Note that this process committed the transactions to the version `before`."""
        place = str(table.metadata().id)
        with self._lock:
            known = self._transactions.get(name)
            if known is not None and known.at == (place, before) and table.version() == before + 1:
                known = _Transactions((place, before + 1), known.versions | dict(transactions))
                self._transactions[name] = known

    def turn(self, name: str) -> threading.Lock:
        """Return the lock of those who write to a table, since they share it."""
        with self._lock:
            return self._turns.setdefault(name, threading.Lock())

    def close(self, name: str) -> None:
        """Open the table anew the next time: what is known of it may be old."""
        with self._lock:
            self._open_tables.pop(name, None)

    def group_files(self, name: str) -> GroupFiles:
        """Return the table's files by group, as this process knows them."""
        with self._lock:
            return self._files.setdefault(name, GroupFiles())

    def note(self, name: str, table: DeltaTable, version: int) -> int:
        """Note that the table has this version, and return the greatest so far."""
        key = name, str(table.metadata().id)
        with self._lock:
            self._versions[key] = max(self._versions.get(key, version), version)
            return self._versions[key]

    def forget(self, name: str) -> None:
        """Forget a table that the job itself set aside."""
        self.close(name)
        with self._lock:
            self._versions = {key: version for key, version in self._versions.items() if key[0] != name}

    def require_present(self, name: str, version: int) -> None:
        """Raise ConflictError, or what `looked_up` raises, unless the table's log still has its newest known version.

        delta-rs would make the folder of a table that is gone, and leave a gap in the log of an older copy. In an
        object store only the lease shows that a copy of all tables is older.
        """
        if self._is_remote or self._has_version(name, version):
            return
        if self.looked_up(name).version() != version:  # else the log was cleaned
            raise ConflictError(f"the table {self._root}/{name} was written to meanwhile")

    def _is_newest(self, name: str, version: int) -> bool:
        return self._has_version(name, version) and not self._has_version(name, version + 1)

    def _has_version(self, name: str, version: int) -> bool:
        return Path(self._root, name, "_delta_log", f"{version:020}.json").exists()

    def _open(self, name: str) -> DeltaTable:
        place = f"{self._root}/{name}"
        with translated_errors(place):
            return DeltaTable(place)

    def _require_folder(self) -> None:
        """Raise StoreFaultError if the lease that the job had is gone: then all tables are, and may come back."""
        with self._lock:
            had_lease = any(name == JOB_LEASE for name, _ in self._versions)
        if had_lease and not DeltaTable.is_deltatable(f"{self._root}/{JOB_LEASE}"):
            raise StoreFaultError(f"the tables in {self._root} are gone: someone moved or deleted them")
