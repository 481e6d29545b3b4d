"""Rewrite files whose text columns some readers cannot filter. Tables of schema versions before 4 may have them.

delta-rs's MERGE and UPDATE wrote these files (see `snapshot.py`).
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.path_store.folder import file_system
from offsetstream.tables.schema import HISTORY_DAY
from offsetstream.tables.store import EVERY_ROW

if TYPE_CHECKING:
    from offsetstream.tables.path_store.snapshot import PathSnapshot

_VIEWS = (pa.string_view(), pa.binary_view())


def rewrite_string_views(table: PathSnapshot) -> None:
    """Rewrite the rows of such files: a complete state table, or complete days of a history.

    Only a part is in memory at a time. Streaming readers of the history see the rows of these days again.
    """
    for where in sorted(set(_parts(table))):
        _rewrite(table, where)


@again_on_conflict
def _rewrite(table: PathSnapshot, where: str) -> None:
    table.refresh()
    table.replace(where, table.rows(where))


def _parts(table: PathSnapshot) -> Iterator[str]:
    """Yield for each such file the condition that selects its part of the table: its day, or all rows."""
    store, is_by_day = file_system(table.where), table.partitioned_by
    for file in pa.table(table.delta.get_add_actions(flatten=True)).to_pylist():
        day = file.get(f"partition.{HISTORY_DAY}")
        with store.open_input_file(unquote(file["path"])) as opened:
            if has_string_views(opened):
                yield f"{HISTORY_DAY} = DATE '{day}'" if is_by_day else EVERY_ROW


def has_string_views(file: pa.NativeFile) -> bool:
    """Return whether a Parquet file has columns of type `string_view` or `binary_view`.

    Reads the Arrow schema in the file's metadata, because pyarrow before 21 shows views as plain text.
    """
    stored = (pq.read_metadata(file).metadata or {}).get(b"ARROW:schema")
    if stored is None:
        return False
    return any(field.type in _VIEWS for field in pa.ipc.read_schema(pa.py_buffer(b64decode(stored))))
