"""Read Spark DataFrames as Arrow: small ones at once, others part by part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from offsetstream.tables.catalog_store.errors import translated_errors, translated_parts
from offsetstream.tables.rows import to_bytes

SMALL_BYTES = 16 << 20  # of files; their rows need several times as much memory


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """Return the frame's columns as an Arrow schema."""
    return to_arrow_schema(frame.schema)


def batches_of(frame: DataFrame, where: str, *, is_small: bool) -> pa.RecordBatchReader:
    """Return the frame's rows. Errors, also those during reading, become TablesError about the table `where`."""
    schema = arrow_schema(frame)
    with translated_errors(where):
        if is_small:
            return frame.toArrow().cast(schema).to_reader()
        parts = frame.mapInArrow(_packed, "packed BINARY").toLocalIterator(prefetchPartitions=True)
        found = (batch for row in parts for batch in pa.ipc.open_stream(row["packed"]))
        rows = (part for batch in found for part in pa.Table.from_batches([batch]).cast(schema).to_batches())
        return pa.RecordBatchReader.from_batches(schema, translated_parts(rows, where))


def _packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"packed": pa.array([to_bytes(batch)], pa.binary())})
