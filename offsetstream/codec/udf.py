"""The codec as pandas UDFs, for any Spark job. No other module of the codec imports pandas or pyspark."""

import pandas as pd
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.pandas.types import from_arrow_schema

from offsetstream.codec.decoding import DECODED_SCHEMA, decode_records

DECODED_TYPE = from_arrow_schema(DECODED_SCHEMA)
"""DECODED_SCHEMA as a Spark struct type."""


def decode_series(keys: pd.Series, values: pd.Series) -> pd.DataFrame:
    """Decode two Series of bytes (None is null) into a frame of Arrow-backed columns named as in DECODED_SCHEMA."""
    batch = decode_records(keys.to_numpy(), values.to_numpy())
    columns = {
        name: pd.arrays.ArrowExtensionArray(column)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    return pd.DataFrame(columns, copy=False)


# Declared nondeterministic: otherwise Spark decodes everything again for a filter on one field.
decode_udf = pandas_udf(decode_series, returnType=DECODED_TYPE).asNondeterministic()  # type: ignore[call-overload]  # pyspark's stubs want a Literal it does not export
"""decode_udf(key, value): a struct with the fields of DECODED_SCHEMA from two binary columns."""
