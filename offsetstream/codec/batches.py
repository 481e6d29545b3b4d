"""Record batches: what a log consists of, with producers, transactions and control records, in every format.

Since Kafka 0.11 they have message format 2 (KIP-98). The topic of an upgraded cluster may still have messages of
formats 0 and 1, each of which is a batch of its own; a compressed one has a set of messages in its value (KIP-31,
KIP-32).
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

import pyarrow as pa
from google_crc32c import value as crc32c

from offsetstream.codec.wire import DecodeError, read_uvarint, reason_in_part

NO_PRODUCER = -1
NO_TIMESTAMP = -1
MAGIC = 2
PREFIX = struct.Struct(">qi")  # base offset, size of the rest: the same in every format
SMALLEST_SIZE = 14  # bytes after offset and size: a format 0 message without key and value
HEADER_BYTES = 61
MAGIC_AT, _ATTRIBUTES_AT = 16, 22  # the lower one of the two attribute bytes
LAST_DELTA_AT = 23
_CHECKSUM_AT, _CHECKED_FROM = 17, 21  # the CRC-32C covers the rest of the batch from _CHECKED_FROM on
# base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base and max timestamp,
# producer id and epoch, base sequence, count of records
_HEADER = struct.Struct(">qiibIhiqqqhii")
_COMPRESSION = 0x07
_LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x08, 0x10, 0x20
_MAX_VARINT_BITS = 63  # a varlong has at most ten bytes
_MESSAGE_START = struct.Struct(">Ibb")  # of formats 0 and 1, after offset and size: CRC, magic, attributes
_MESSAGE_CHECKED_FROM = PREFIX.size + 4
_NONE, _SNAPPY, _LZ4 = 0, 2, 3
_STREAMS = {1: "gzip", _LZ4: "lz4", 4: "zstd"}
_NAMES = {_SNAPPY: "snappy", **_STREAMS}
_LAST_OF_MESSAGES = _LZ4  # zstd came after formats 0 and 1 (KIP-110)
_XERIAL = b"\x82SNAPPY\0"  # followed by two 32-bit versions, then blocks, each after its length
_XERIAL_HEADER = 16
# The start of Kafka's LZ4 frames, and the correct checksum byte after it. In message format 0 Kafka wrote a wrong byte
# there, which standard LZ4 readers reject (KAFKA-3160).
_LZ4_HEADER, _LZ4_CHECKSUM = b"\x04\x22\x4d\x18\x60\x40", b"\x82"


class ControlType(IntEnum):
    """The markers that end a transaction (Kafka's ControlRecordType). A coordinator ignores all other types."""

    ABORT = 0
    COMMIT = 1


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record: its offset in the partition, its timestamp in milliseconds (None if it has none), key and value."""

    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """A batch as it is in the log. Compaction may have removed some of its records, or all.

    `next_offset` is the offset after the batch's last one, even if that record is gone. `size` is the batch's size in
    bytes. `producer_id` is `NO_PRODUCER` if no idempotent producer wrote the batch. In a control batch, the keys of the
    records are markers (see `control_type`).
    """

    base_offset: int
    next_offset: int
    records: tuple[LogRecord, ...]
    producer_id: int = NO_PRODUCER
    producer_epoch: int = -1
    is_transactional: bool = False
    is_control: bool = False
    size: int = 0


def control_type(record: LogRecord) -> int | None:
    """Return the type of a control record: a `ControlType` or another number. None if its key is not a marker.

    A marker's key has a version and a type, 16 bits each (Kafka's ControlRecordType.parseTypeId).
    """
    if record.key is None or len(record.key) < 4:  # noqa: PLR2004 - two numbers of 16 bits
        return None
    version = int.from_bytes(record.key[:2], "big", signed=True)
    return int.from_bytes(record.key[2:4], "big", signed=True) if version >= 0 else None


class Extent(NamedTuple):
    """Which offsets a batch covers (`next_offset` is exclusive), how many records it has, and their newest time."""

    base_offset: int
    next_offset: int
    records: int
    newest_ms: int

    @classmethod
    def of(cls, data: bytes) -> Extent:
        """Read it from the header of a batch, which must be complete."""
        base, _, _, _, _, _, last_delta, _, newest_ms, _, _, _, count = _HEADER.unpack_from(data)
        return cls(base, base + last_delta + 1, count, newest_ms)


def is_transactional_or_control(data: bytes, at: int) -> bool:
    """Whether the batch at position `at` of `data` is transactional or a control batch. Its header must be complete.

    False for older formats, which have neither.
    """
    return data[at + MAGIC_AT] == MAGIC and bool(data[at + _ATTRIBUTES_AT] & (_TRANSACTIONAL | _CONTROL))


def is_compressed(data: bytes) -> bool:
    """Whether the records of a batch are compressed, or may be, as in a message of an older format."""
    return data[MAGIC_AT] != MAGIC or bool(data[_ATTRIBUTES_AT] & _COMPRESSION)


def matches_checksum(batch: bytes) -> bool:
    """Whether the batch's CRC-32C matches; True for older formats, which have none."""
    expected = int.from_bytes(batch[_CHECKSUM_AT:_CHECKED_FROM], "big")
    return not has_crc32c(batch) or crc32c(batch[_CHECKED_FROM:]) == expected


def has_crc32c(data: bytes) -> bool:
    """Whether this is a batch of format 2 with a whole header."""
    return len(data) >= HEADER_BYTES and data[MAGIC_AT] == MAGIC


def read_batch(data: bytes, *, with_data: bool = True) -> RecordBatch:
    """Read a batch of any format. `data` goes from its base offset to its end. Raises DecodeError.

    The caller checks the CRC-32C (`matches_checksum`); the CRC-32 of formats 0 and 1 is checked here. Without
    `with_data`, batches of format 2 get no records, unless they are control batches. If the log cleaner has set a
    delete horizon, it is stored in place of the base timestamp. The records' timestamp deltas are relative to it all
    the same (KAFKA-8522).
    """
    if len(data) > MAGIC_AT and data[MAGIC_AT] != MAGIC:
        return _read_message(data)
    header = Header.of(data)
    has_records = header.count > 0 and (with_data or header.is_control)
    return RecordBatch(
        base_offset=header.base_offset,
        next_offset=header.next_offset,
        records=_records(header, decompress(header.compression, data[HEADER_BYTES:])) if has_records else (),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        size=len(data),
    )


@dataclass(frozen=True, slots=True)
class Header:
    """What a batch says of its records. `append_ms`: their time, if the broker set it; else each has its own."""

    base_offset: int
    next_offset: int
    count: int
    base_ms: int
    append_ms: int | None
    compression: int
    producer_id: int
    producer_epoch: int
    is_transactional: bool
    is_control: bool

    @classmethod
    def of(cls, data: bytes) -> Header:
        """Read the header of a batch. Raises DecodeError."""
        if len(data) < HEADER_BYTES:
            raise DecodeError(f"a batch of {len(data)} bytes is shorter than its header")
        base, _, _, _, _, attributes, last_delta, base_ms, max_ms, producer, epoch, _, count = _HEADER.unpack_from(data)
        if last_delta < 0 or count < 0:
            raise DecodeError(f"negative number of records or offsets ({count}, {last_delta})")
        return cls(
            base,
            base + last_delta + 1,
            count,
            base_ms,
            max_ms if attributes & _LOG_APPEND_TIME else None,
            attributes & _COMPRESSION,
            producer,
            epoch,
            bool(attributes & _TRANSACTIONAL),
            bool(attributes & _CONTROL),
        )


def _records(header: Header, body: bytes) -> tuple[LogRecord, ...]:
    records, at, count, append_ms = [], 0, header.count, header.append_ms
    try:
        for _ in range(count):
            length, at = read_varint(body, at)
            end = at + length
            delta_ms, at = read_varint(body, at + 1)  # skips the attributes, which are unused
            delta, at = read_varint(body, at)
            key, at = _sized(body, at)
            value, at = _sized(body, at)
            at = _after_headers(body, at)
            if at != end:
                raise DecodeError(f"a record states {length} bytes but has {length + at - end}")
            timestamp = header.base_ms + delta_ms if append_ms is None else append_ms
            records.append(
                LogRecord(header.base_offset + delta, None if timestamp == NO_TIMESTAMP else timestamp, key, value)
            )
    except IndexError:
        raise DecodeError(reason_in_part("truncated", f"record {len(records)} of {count}")) from None
    if at != len(body):
        raise DecodeError(f"{len(body) - at} bytes are left after its {count} records")
    return tuple(records)


def _after_headers(body: bytes, at: int) -> int:
    count, at = read_varint(body, at)
    if count < 0:
        raise DecodeError("negative number of headers")
    for _ in range(count):
        key, at = _sized(body, at)
        if key is None:
            raise DecodeError("a header has no key")
        _, at = _sized(body, at)
    return at


def _sized(body: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = read_varint(body, at)
    if length < 0:
        return None, at
    end = at + length
    if end > len(body):
        raise IndexError
    return body[at:end], end


def read_varint(body: bytes, at: int) -> tuple[int, int]:
    """Read a zigzag varint of 32 or 64 bits; raises IndexError at the end of the bytes."""
    byte = body[at]
    if byte < 0x80:  # noqa: PLR2004 - one byte: the usual case
        return (byte >> 1) ^ -(byte & 1), at + 1
    number, shift = byte & 0x7F, 7
    while byte & 0x80:
        if shift > _MAX_VARINT_BITS:
            raise DecodeError("varint over ten bytes")
        at += 1
        byte = body[at]
        number |= (byte & 0x7F) << shift
        shift += 7
    return (number >> 1) ^ -(number & 1), at + 1


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


def _read_message(data: bytes) -> RecordBatch:
    """Read one message, or the messages inside a compressed one. `data` starts at its offset. Raises DecodeError."""
    checksum = int.from_bytes(data[PREFIX.size : _MESSAGE_CHECKED_FROM], "big")
    if checksum != zlib.crc32(data[_MESSAGE_CHECKED_FROM:]):
        raise DecodeError("its checksum (CRC-32) does not match")
    outer = _message(data, 0, len(data))
    messages = [outer] if outer.compression == _NONE else _unwrapped(outer)
    records = tuple(LogRecord(each.offset, each.timestamp_ms, each.key, each.value) for each in messages)
    return RecordBatch(records[0].offset, outer.offset + 1, records, size=len(data))


def _message(data: bytes, start: int, end: int) -> _Message:
    (offset,) = struct.unpack_from(">q", data, start)
    try:
        _, magic, attributes = _MESSAGE_START.unpack_from(data, start + PREFIX.size)
        at, timestamp = start + PREFIX.size + _MESSAGE_START.size, NO_TIMESTAMP
        if magic > 0:
            (timestamp,) = struct.unpack_from(">q", data, at)
            at += 8
        key, at = _message_bytes(data, at, end)
        value, at = _message_bytes(data, at, end)
    except struct.error:
        raise DecodeError("a message is truncated") from None
    if at != end:
        raise DecodeError(f"{end - at} bytes are left after a message's value")
    return _Message(offset, magic, attributes, None if timestamp == NO_TIMESTAMP else timestamp, key, value)


def _message_bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
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
    if outer.compression > _LAST_OF_MESSAGES:
        raise DecodeError(f"unknown compression type {outer.compression}")
    content = outer.value
    if outer.magic == 0 and outer.compression == _LZ4 and content.startswith(_LZ4_HEADER):
        content = _LZ4_HEADER + _LZ4_CHECKSUM + content[len(_LZ4_HEADER) + 1 :]
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
        replace(each, offset=base + each.offset, timestamp_ms=time) for each, time in zip(inner, times, strict=True)
    ]


def _message_set(content: bytes) -> list[_Message]:
    messages, at = [], 0
    while at < len(content):
        if at + PREFIX.size > len(content):
            raise DecodeError("a compressed message set is truncated")
        _, size = PREFIX.unpack_from(content, at)
        end = at + PREFIX.size + size
        if size < SMALLEST_SIZE or end > len(content):
            raise DecodeError("a compressed message set is truncated")
        messages.append(_message(content, at, end))
        at = end
    return messages


def decompress(kind: int, data: bytes) -> bytes:
    """Decompress the data of a batch or message. `kind` is Kafka's compression type. Raises DecodeError."""
    if kind == _NONE:
        return data
    if kind not in _NAMES:
        raise DecodeError(f"unknown compression type {kind}")
    try:
        return _snappy(data) if kind == _SNAPPY else _stream(_STREAMS[kind], data)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DecodeError(f"cannot be decompressed ({_NAMES[kind]}): {' '.join(str(error).split())}") from error


def _stream(name: str, data: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), name) as stream:
        content: bytes = stream.read()
    return content


def _snappy(data: bytes) -> bytes:
    """Decompress the blocks that the Java library writes, or one raw block, which other clients write."""
    if not data.startswith(_XERIAL):
        return _snappy_block(data)
    blocks, at = [], _XERIAL_HEADER
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            raise ValueError("a block is truncated")
        blocks.append(_snappy_block(data[at + 4 : end]))
        at = end
    return b"".join(blocks)


def _snappy_block(block: bytes) -> bytes:
    size, _ = read_uvarint(block, 0)  # a block starts with its uncompressed size
    content: bytes = pa.Codec("snappy").decompress(block, size, asbytes=True)
    return content
