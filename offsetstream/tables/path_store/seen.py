"""What a job has seen of its tables' folder: it must neither write into an older copy nor into a folder that is away.

If a job wrote on into an older copy, the copy's history would have a gap that only `verify --history` finds. And what
it wrote into the place of a folder would stand in the way when that comes back.
"""

from __future__ import annotations

import threading
from pathlib import Path

from deltalake import DeltaTable

from offsetstream.errors import NoTableError, OlderCopyError, StoreFaultError, TablesError
from offsetstream.tables.names import JOB_LEASE
from offsetstream.tables.path_store.errors import translated_errors


class SeenTables:
    """The tables of the folder `root` that one process opened, with their greatest versions. Threads may share it."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._versions: dict[tuple[str, str], int] = {}  # by the table's name and id: one made anew has another id
        self._lock = threading.Lock()

    def opened(self, name: str) -> DeltaTable:
        """Open a table. Raises OlderCopyError, NoTableError, and StoreFaultError if the folder is away."""
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
        self.require_present(name)
        before = self.note(name, table, table.version())
        try:
            with translated_errors(table.table_uri):
                table.update_incremental()
        except TablesError:  # delta-rs can say no more than that the log lacks this version
            self.opened(name)
            raise
        return table if table.version() >= before else self.opened(name)

    def note(self, name: str, table: DeltaTable, version: int) -> int:
        """Note that the table has this version, and return the greatest so far."""
        key = name, str(table.metadata().id)
        with self._lock:
            self._versions[key] = max(self._versions.get(key, version), version)
            return self._versions[key]

    def forget(self, name: str) -> None:
        """Forget a table that the job itself set aside."""
        with self._lock:
            self._versions = {key: version for key, version in self._versions.items() if key[0] != name}

    def require_present(self, name: str) -> None:
        """Raise what `opened` raises if a local table is gone: delta-rs would make its folder, and then fail."""
        if "://" not in self._root and not Path(self._root, name, "_delta_log").is_dir():
            self.opened(name)

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
