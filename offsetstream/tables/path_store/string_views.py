"""Files whose text only some readers can filter, which versions before 4 of the tables have: they are written anew.

They are of delta-rs's MERGE and UPDATE (see `snapshot.py`).
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
    """Write the rows of such files anew: a whole state table, or those days of a history.

    A part at a time is in memory. Who reads the history as a stream sees the rows of these days again.
    """
    for where in sorted(set(_parts(table))):
        _rewrite(table, where)


@again_on_conflict
def _rewrite(table: PathSnapshot, where: str) -> None:
    table.refresh()
    table.replace(where, table.rows(where))


def _parts(table: PathSnapshot) -> Iterator[str]:
    """Yield the conditions on the rows that lie in the same part of the table as such a file."""
    store, is_by_day = file_system(table.where), table.partitioned_by
    for file in pa.table(table.delta.get_add_actions(flatten=True)).to_pylist():
        day = file.get(f"partition.{HISTORY_DAY}")
        with store.open_input_file(unquote(file["path"])) as opened:
            if has_string_views(opened):
                yield f"{HISTORY_DAY} = DATE '{day}'" if is_by_day else EVERY_ROW


def has_string_views(file: pa.NativeFile) -> bool:
    """Whether a Parquet file has text as views, by its writer's note: before 21 pyarrow shows them as plain text."""
    noted = (pq.read_metadata(file).metadata or {}).get(b"ARROW:schema")
    if noted is None:
        return False
    return any(field.type in _VIEWS for field in pa.ipc.read_schema(pa.py_buffer(b64decode(noted))))
