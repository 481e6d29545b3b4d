"""Read messages of formats 0 and 1 (before Kafka 0.11). The topic of an upgraded cluster may still have them.

Each message is a batch of its own. A compressed message has a set of messages in its value (KIP-31, KIP-32).
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from offsetstream.codec.batch_format import MAGIC, MAGIC_AT, read_batch
from offsetstream.codec.compression import NONE, decompress, repair_lz4_checksum
from offsetstream.codec.record_batches import LogRecord, RecordBatch
from offsetstream.codec.wire import DecodeError

SMALLEST_SIZE = 14  # bytes after offset and size: a format 0 message without key and value
_PREFIX = struct.Struct(">qi")  # offset, size
_START = struct.Struct(">Ibb")  # CRC, magic, attributes
_COMPRESSION, _LOG_APPEND_TIME = 0x07, 0x08
_LAST_COMPRESSION = 3  # zstd came after these formats
_CHECKED_FROM = _PREFIX.size + 4
_NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True)
class _Message:
    offset: int
    magic: int
    attributes: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None

    @property
    def compression(self) -> int:
        return self.attributes & _COMPRESSION


def read_any_format(data: bytes, *, with_data: bool = True) -> RecordBatch:
    """Read a batch of format 2 as `read_batch` does, or a message as `read_message` does. Raises DecodeError."""
    return read_batch(data, with_data=with_data) if data[MAGIC_AT] == MAGIC else read_message(data)


def read_message(data: bytes) -> RecordBatch:
    """Read one message, or the messages inside a compressed one. `data` starts at its offset. Raises DecodeError."""
    checksum = int.from_bytes(data[_PREFIX.size : _CHECKED_FROM], "big")
    if checksum != zlib.crc32(data[_CHECKED_FROM:]):
        raise DecodeError("its checksum (CRC-32) does not match")
    outer = _message(data, 0, len(data))
    messages = [outer] if outer.compression == NONE else _unwrapped(outer)
    records = tuple(LogRecord(each.offset, each.timestamp_ms, each.key, each.value) for each in messages)
    return RecordBatch(records[0].offset, outer.offset + 1, records, size=len(data))


def _message(data: bytes, start: int, end: int) -> _Message:
    (offset,) = struct.unpack_from(">q", data, start)
    try:
        _, magic, attributes = _START.unpack_from(data, start + _PREFIX.size)
        at, timestamp = start + _PREFIX.size + _START.size, _NO_TIMESTAMP
        if magic > 0:
            (timestamp,) = struct.unpack_from(">q", data, at)
            at += 8
        key, at = _bytes(data, at, end)
        value, at = _bytes(data, at, end)
    except struct.error:
        raise DecodeError("a message is truncated") from None
    if at != end:
        raise DecodeError(f"{end - at} bytes are left after a message's value")
    return _Message(offset, magic, attributes, None if timestamp == _NO_TIMESTAMP else timestamp, key, value)


def _bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    (length,) = struct.unpack_from(">i", data, at)
    at += 4
    if length < 0:
        return None, at
    if at + length > end:
        raise DecodeError("a key or value is longer than its message")
    return data[at : at + length], at + length


def _unwrapped(outer: _Message) -> list[_Message]:
    """Return the messages inside a compressed one. In format 1 their offsets are relative (KIP-31)."""
    if outer.value is None:
        raise DecodeError("a compressed message has no value")
    if outer.compression > _LAST_COMPRESSION:
        raise DecodeError(f"unknown compression type {outer.compression}")
    content = repair_lz4_checksum(outer.compression, outer.value) if outer.magic == 0 else outer.value
    inner = _message_set(decompress(outer.compression, content))
    if not inner or any(each.compression or each.magic != outer.magic for each in inner):
        raise DecodeError("a compressed message is empty, or has compressed messages or another format inside")
    if outer.magic == 0:
        return inner
    # Some producers left the outer offset 0; the base offset is then 0 (Kafka's DeepRecordsIterator).
    base = outer.offset - inner[-1].offset if outer.offset else 0
    if base < 0:
        raise DecodeError("the offset of a compressed message is below the offsets inside it")
    appended = outer.timestamp_ms if outer.attributes & _LOG_APPEND_TIME else None
    times = [each.timestamp_ms if appended is None else appended for each in inner]
    return [
        _Message(base + each.offset, each.magic, each.attributes, time, each.key, each.value)
        for each, time in zip(inner, times, strict=True)
    ]


def _message_set(content: bytes) -> list[_Message]:
    messages, at = [], 0
    while at < len(content):
        if at + _PREFIX.size > len(content):
            raise DecodeError("a compressed message set is truncated")
        _, size = _PREFIX.unpack_from(content, at)
        end = at + _PREFIX.size + size
        if size < SMALLEST_SIZE or end > len(content):
            raise DecodeError("a compressed message set is truncated")
        messages.append(_message(content, at, end))
        at = end
    return messages
