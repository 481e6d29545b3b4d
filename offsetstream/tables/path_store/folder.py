"""The folder of a table, wherever it lies, as a file system."""

from __future__ import annotations

import pyarrow.fs as pafs
from deltalake.fs import DeltaStorageHandler


def file_system(table: str) -> pafs.PyFileSystem:
    """Return the folder of a table as Arrow's file system."""
    return pafs.PyFileSystem(DeltaStorageHandler(table))
