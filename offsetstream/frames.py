"""The codec for whole tables of records: Arrow in, Arrow out; pandas in, pandas out."""

from __future__ import annotations

import sys
from typing import Any, TypeVar, cast

import pyarrow as pa

from offsetstream.codec.decoding import decode_records

Records = TypeVar("Records")  # a pyarrow Table or RecordBatch, or a pandas DataFrame


def decode(records: Records, key: str = "key", value: str = "value") -> Records:
    """Decode records of `__consumer_offsets` into the columns of `DECODED_SCHEMA`.

    `records` is an Arrow table or record batch, or a pandas frame, with binary columns of keys and values (null is a
    tombstone); what comes back is of the same kind, one row a record, in order (a frame has Arrow's types and the index
    of `records`). A record that cannot be decoded has a reason in `error`. Raises TypeError for what is none of
    these, KeyError for a column that is not there.
    """
    return cast("Records", _decode(records, key, value))


def _decode(records: Any, key: str, value: str) -> Any:
    if isinstance(records, pa.Table | pa.RecordBatch):
        decoded = decode_records(records.column(key), records.column(value))
        return decoded if isinstance(records, pa.RecordBatch) else pa.Table.from_batches([decoded])
    pandas = sys.modules.get("pandas")  # who has a frame has imported it; others need not have it
    if pandas is None or not isinstance(records, pandas.DataFrame):
        kind = type(records).__name__
        raise TypeError(f"records are a {kind}: pass an Arrow table or record batch, or a pandas frame")
    found = decode_records(records[key], records[value]).to_pandas(types_mapper=pandas.ArrowDtype)
    return found.set_axis(records.index)
