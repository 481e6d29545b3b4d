"""Files whose text only some readers can filter, which versions before 4 of the tables have: they are written anew.

They are of delta-rs's MERGE and UPDATE (see ``replace.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.files import file_system
from offsetstream.tables.replace import EVERY_ROW, replace_rows, stored_rows
from offsetstream.tables.schema import HISTORY_DAY, TableSchema

_VIEWS = (pa.string_view(), pa.binary_view())


def rewrite_string_views(path: str, schema: TableSchema) -> int:
    """Write the rows of such files anew: a whole state table, or those days of a history; returns how many commits.

    A part at a time is in memory. Who reads the history as a stream sees the rows of these days again.
    """
    parts = sorted(set(_parts(DeltaTable(path), schema)))
    for where in parts:
        _rewrite(path, where)
    return len(parts)


@again_on_conflict
def _rewrite(path: str, where: str) -> None:
    table = DeltaTable(path)
    replace_rows(table, where, stored_rows(table, where))


def _parts(table: DeltaTable, schema: TableSchema) -> Iterator[str]:
    """Yield the conditions on the rows that lie in the same part of the table as such a file."""
    store = file_system(table.table_uri)
    for file in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        day = file.get(f"partition.{HISTORY_DAY}")
        with store.open_input_file(unquote(file["path"])) as opened:
            if any(field.type in _VIEWS for field in pq.read_schema(opened)):
                yield f"{HISTORY_DAY} = DATE '{day}'" if schema.partitioned_by else EVERY_ROW
