"""The folder of a table, in any store, as a file system."""

from __future__ import annotations

import pyarrow.fs as pafs
from deltalake.fs import DeltaStorageHandler


def file_system(table: str) -> pafs.PyFileSystem:
    """Return the folder of a table as an Arrow file system."""
    return pafs.PyFileSystem(DeltaStorageHandler(table))
