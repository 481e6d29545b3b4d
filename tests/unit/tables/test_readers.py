"""Every engine can filter the driver's rows by text."""

from __future__ import annotations

from base64 import b64decode

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from offsetstream.tables.path_store import PathStore
from testkit.engines import require_that_all_read
from tests.unit.tables.small_writes import WRITES, SmallWrite


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.name)
def test_every_engine_can_filter_written_rows(tables: PathStore, write: SmallWrite) -> None:
    for step in (write.prepare, write.run):
        step(tables)
        assert require_that_all_read(tables, write.table)
    assert not has_string_views(tables.table(write.table))


def has_string_views(path: str) -> bool:
    """Whether a file has text that a pyarrow dataset cannot filter, by the Arrow schema in its metadata."""
    for file in DeltaTable(path).file_uris():
        stored = (pq.read_metadata(file).metadata or {}).get(b"ARROW:schema")
        types = pa.ipc.read_schema(pa.py_buffer(b64decode(stored))).types if stored else []
        if {pa.string_view(), pa.binary_view()} & {*types}:
            return True
    return False
