"""The codec as pandas UDFs, for any Spark job. The only module of the codec that imports pandas and pyspark."""

import pandas as pd
import pyarrow as pa
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.pandas.types import from_arrow_schema

from offsetstream.codec.decoding import DECODED_SCHEMA, decode_records

DECODED_TYPE = from_arrow_schema(DECODED_SCHEMA)
"""DECODED_SCHEMA as a Spark struct type."""


def decode_series(keys: pd.Series, values: pd.Series) -> pd.DataFrame:
    """Decode two Series of bytes (None is null) into a frame of Arrow-backed columns named as in DECODED_SCHEMA."""
    batch = decode_records(_binary(keys), _binary(values))
    columns = {
        name: pd.arrays.ArrowExtensionArray(column)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    return pd.DataFrame(columns, copy=False)


def _binary(series: pd.Series) -> pa.Array:
    return pa.array(series.to_numpy(), pa.binary(), from_pandas=True)


decode_udf = pandas_udf(decode_series, DECODED_TYPE)
"""decode_udf(key, value): a struct of DECODED_SCHEMA's fields from two binary columns.

Read the struct once (`select(decode_udf("key", "value").alias("d")).select("d.*")` behind a projection barrier):
a filter on one of its fields evaluates the UDF a second time.
"""
