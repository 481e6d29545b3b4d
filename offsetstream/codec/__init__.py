"""Bytes of `__consumer_offsets` to columns and back: every record that Kafka 2.0 to 4.4 writes there.

`decode_records` takes Arrow arrays or pandas Series and gives Arrow columns; the others take one record at a time, in
the form of Kafka's JSON. Spark's UDF is in `offsetstream.codec.udf`.
"""

from offsetstream.codec.decoding import DECODED_SCHEMA, decode_records
from offsetstream.codec.encode import encode_record, encode_value
from offsetstream.codec.records import decode_key, decode_value
from offsetstream.codec.releases import encode_as_release
from offsetstream.codec.wire import DecodeError

__all__ = [
    "DECODED_SCHEMA",
    "DecodeError",
    "decode_key",
    "decode_records",
    "decode_value",
    "encode_as_release",
    "encode_record",
    "encode_value",
]
