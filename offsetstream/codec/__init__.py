"""Bytes of `__consumer_offsets` to columns and back: every record that Kafka 2.0 to 4.4 writes there."""

from offsetstream.codec.decoding import DECODED_SCHEMA, decode_records

__all__ = ["DECODED_SCHEMA", "decode_records"]
