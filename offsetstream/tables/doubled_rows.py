"""Find rows of a state table with the same key. The job never writes them, but another program may have."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from offsetstream.errors import DoubledRowsError
from offsetstream.tables.schema import load_schema
from offsetstream.tables.store import EVERY_ROW, Store

_MEMORY = "256MB"  # DuckDB spills to disk beyond this


def require_no_doubled_rows(tables: Store, name: str) -> None:
    """Raise DoubledRowsError if a key is in the table more than once. Reads all keys once."""
    key, table = load_schema(name).key, tables.open(name)
    batches = (batch for part in table.rows(EVERY_ROW, key) for batch in part.to_batches())
    reader = pa.RecordBatchReader.from_batches(pa.schema([table.arrow.field(column) for column in key]), batches)
    # Hashes of ten million keys take some hundred megabytes. A collision would only cost an unneeded load.
    query = f"SELECT offsets_partition, hash({', '.join(key)}) FROM reader GROUP BY ALL HAVING count(*) > 1"  # noqa: S608 - our own names
    with duckdb.connect(config={"memory_limit": _MEMORY}) as connection:
        connection.register("reader", reader)
        found = {number for number, _ in connection.execute(query).fetchall()}
    if found:
        raise DoubledRowsError(name, found)
