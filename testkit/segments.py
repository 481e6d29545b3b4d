"""Writes log segments byte by byte, as Kafka's documentation describes the message formats."""

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

Record = tuple[bytes | None, bytes | None]
TRANSACTIONAL, CONTROL, DELETE_HORIZON, LOG_APPEND_TIME = 0x10, 0x20, 0x40, 0x08
NO_PRODUCER = (-1, -1)
COMMIT, ABORT = 1, 0


def crc32c(data: bytes) -> int:
    """Compute the checksum bit by bit: slow, but just as specified."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def varint(number: int) -> bytes:
    rest = ((number << 1) ^ (number >> 63)) & (2**64 - 1)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    delta: int, key: bytes | None, value: bytes | None, delta_ms: int = 0, headers: Sequence[Record] = ()
) -> bytes:
    tags = b"".join(sized(name) + sized(text) for name, text in headers)
    body = b"\0" + varint(delta_ms) + varint(delta) + sized(key) + sized(value) + varint(len(headers)) + tags
    return varint(len(body)) + body


def batch(
    base: int,
    records: Sequence[Record],
    attributes: int = 0,
    producer: tuple[int, int] = NO_PRODUCER,
    *,
    base_ms: int = 1000,
    max_ms: int = 2000,
    deltas: Sequence[int] | None = None,
    last_delta: int | None = None,
    body: bytes | None = None,
    count: int | None = None,
) -> bytes:
    """Return a batch of format 2. `deltas`: offset deltas of the records that are left; `body` replaces all records."""
    deltas = range(len(records)) if deltas is None else deltas
    if body is None:
        pairs = zip(deltas, records, strict=True)
        body = b"".join(record(delta, *each, delta_ms=delta) for delta, each in pairs)
    last = last_delta if last_delta is not None else max(deltas, default=0)
    counted = len(records) if count is None else count
    checked = struct.pack(">hiqqqhii", attributes, last, base_ms, max_ms, *producer, -1, counted) + body
    return struct.pack(">qiibI", base, len(checked) + 9, 0, 2, crc32c(checked)) + checked


def marker(base: int, kind: int, producer: tuple[int, int], ms: int = 1000) -> bytes:
    """Return the batch that ends a transaction."""
    end = (struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 3))
    return batch(base, [end], TRANSACTIONAL | CONTROL, producer, base_ms=ms)


def message(offset: int, magic: int, key: bytes | None, value: bytes | None, attributes: int = 0, ms: int = 5) -> bytes:
    """Return a message of format 0 or 1."""
    cells = b"".join(struct.pack(">i", -1 if cell is None else len(cell)) + (cell or b"") for cell in (key, value))
    checked = struct.pack(">bb", magic, attributes) + (struct.pack(">q", ms) if magic else b"") + cells
    return struct.pack(">qiI", offset, len(checked) + 4, zlib.crc32(checked)) + checked


def write_segment(folder: Path, base: int, *batches: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{base:020d}.log"
    path.write_bytes(b"".join(batches))
    return path
