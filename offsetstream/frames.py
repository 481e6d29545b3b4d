"""The codec for tables of records: Arrow in, Arrow out; pandas in, pandas out."""

from __future__ import annotations

import sys
from typing import Any, TypeVar, cast

import pyarrow as pa

from offsetstream.codec.decoding import decode_records

Records = TypeVar("Records")  # a pyarrow Table or RecordBatch, or a pandas DataFrame


def decode(records: Records, key: str = "key", value: str = "value") -> Records:
    """Decode records of `__consumer_offsets` into the columns of `DECODED_SCHEMA`.

    `records` is an Arrow table or record batch, or a pandas frame, with the binary columns `key` and `value` (a null
    value is a tombstone). The result has the same kind and order, with one row per record. A frame gets Arrow types and
    keeps its index. If a record cannot be decoded, `error` gives the reason. Raises TypeError for another kind of
    `records`, KeyError for a missing column.
    """
    return cast("Records", _decode(records, key, value))


def _decode(records: Any, key: str, value: str) -> Any:
    if isinstance(records, pa.Table | pa.RecordBatch):
        decoded = decode_records(records.column(key), records.column(value))
        return decoded if isinstance(records, pa.RecordBatch) else pa.Table.from_batches([decoded])
    pandas = sys.modules.get("pandas")  # a caller with a frame has imported pandas; others do not need it
    if pandas is None or not isinstance(records, pandas.DataFrame):
        kind = type(records).__name__
        raise TypeError(f"records are a {kind}: pass an Arrow table or record batch, or a pandas frame")
    found = decode_records(records[key], records[value]).to_pandas(types_mapper=pandas.ArrowDtype)
    return found.set_axis(records.index)
