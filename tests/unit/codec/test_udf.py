"""The pandas part of the UDF, without a JVM."""

import pandas as pd
import pyarrow as pa
from pyspark.sql.types import StructType

from offsetstream.codec import DECODED_SCHEMA, decode_records
from offsetstream.codec.udf import DECODED_TYPE, decode_series
from tests.unit.codec.test_decode_records import sample


def test_a_frame_of_arrow_columns_without_a_copy() -> None:
    records = sample(100)
    keys, values = pd.Series([key for key, _ in records]), pd.Series([value for _, value in records])
    frame = decode_series(keys, values)
    assert list(frame.columns) == DECODED_SCHEMA.names
    assert all(isinstance(kind, pd.ArrowDtype) for kind in frame.dtypes)
    assert pa.RecordBatch.from_pandas(frame, DECODED_SCHEMA, preserve_index=False) == decode_records(keys, values)


def test_an_empty_batch() -> None:
    empty = pd.Series([], dtype=object)
    assert decode_series(empty, empty).shape == (0, len(DECODED_SCHEMA))


def test_the_udf_type_has_the_fields_of_the_schema() -> None:
    assert isinstance(DECODED_TYPE, StructType)
    assert DECODED_TYPE.fieldNames() == DECODED_SCHEMA.names
