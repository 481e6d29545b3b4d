"""Decode and encode `__consumer_offsets` records: every record type that Kafka 2.0 to 4.4 writes.

`decode_records` decodes batches: Arrow arrays or pandas Series in, Arrow columns out. The other functions take
one record at a time, in the form of Kafka's JSON. The Spark UDF is in `offsetstream.codec.udf`.
"""

from offsetstream.codec.decoding import DECODED_SCHEMA, decode_records
from offsetstream.codec.records import decode_key, decode_value, encode_as_release, encode_record, encode_value
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
