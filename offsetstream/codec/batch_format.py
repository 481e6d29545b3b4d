"""Read and check one record batch of message format 2 (KIP-98, Kafka 0.11 and later)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from offsetstream.codec.compression import decompress
from offsetstream.codec.record_batches import LogRecord, RecordBatch
from offsetstream.codec.wire import DecodeError, reason_in_part

MAGIC = 2
HEADER_BYTES = 61
CHECKSUM_AT, CHECKED_FROM = 17, 21  # the CRC-32C covers the rest of the batch from CHECKED_FROM on
MAGIC_AT, _ATTRIBUTES_AT = 16, 22  # the lower one of the two attribute bytes
LAST_DELTA_AT = 23
# base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base and max timestamp,
# producer id and epoch, base sequence, count of records
_HEADER = struct.Struct(">qiibIhiqqqhii")
_COMPRESSION = 0x07
_LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x08, 0x10, 0x20
NO_TIMESTAMP = -1
_MAX_VARINT_BITS = 63  # a varlong has at most ten bytes


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


def read_batch(data: bytes, *, with_data: bool = True) -> RecordBatch:
    """Read a batch. `data` goes from its base offset to its end; the caller checks the checksum. Raises DecodeError.

    Without `with_data`, only control batches get their records. If the log cleaner has set a delete horizon, it is
    stored in place of the base timestamp. The records' timestamp deltas are relative to it all the same (KAFKA-8522).
    """
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


def _records(header: Header, body: bytes) -> tuple[LogRecord, ...]:
    records, at, count, append_ms = [], 0, header.count, header.append_ms
    try:
        for _ in range(count):
            length, at = read_varint(body, at)
            end = at + length
            delta_ms, at = read_varint(body, at + 1)  # skips the attributes, which are unused
            delta, at = read_varint(body, at)
            key, at = _bytes(body, at)
            value, at = _bytes(body, at)
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
        key, at = _bytes(body, at)
        if key is None:
            raise DecodeError("a header has no key")
        _, at = _bytes(body, at)
    return at


def _bytes(body: bytes, at: int) -> tuple[bytes | None, int]:
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
