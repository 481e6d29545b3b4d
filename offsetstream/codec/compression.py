"""Decompress Kafka's compression types with Arrow's codecs (KIP-98; zstd: KIP-110)."""

from __future__ import annotations

import pyarrow as pa

from offsetstream.codec.wire import DecodeError, read_uvarint

NONE = 0
_SNAPPY = 2
_LZ4 = 3
_STREAMS = {1: "gzip", _LZ4: "lz4", 4: "zstd"}
_NAMES = {_SNAPPY: "snappy", **_STREAMS}
_XERIAL = b"\x82SNAPPY\0"  # followed by two 32-bit versions, then blocks, each after its length
_XERIAL_HEADER = 16
# The start of Kafka's LZ4 frames, and the correct checksum byte after it. In message format 0 Kafka wrote a wrong byte
# there, which standard LZ4 readers reject (KAFKA-3160).
_LZ4_HEADER, _LZ4_CHECKSUM = b"\x04\x22\x4d\x18\x60\x40", b"\x82"


def decompress(kind: int, data: bytes) -> bytes:
    """Decompress the data of a batch or message. `kind` is Kafka's compression type. Raises DecodeError."""
    if kind == NONE:
        return data
    if kind not in _NAMES:
        raise DecodeError(f"unknown compression type {kind}")
    try:
        return _snappy(data) if kind == _SNAPPY else _stream(_STREAMS[kind], data)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DecodeError(f"cannot be decompressed ({_NAMES[kind]}): {' '.join(str(error).split())}") from error


def repair_lz4_checksum(kind: int, data: bytes) -> bytes:
    """Return the content of a format 0 message with a correct checksum in its LZ4 frame header."""
    if kind != _LZ4 or not data.startswith(_LZ4_HEADER):
        return data
    return _LZ4_HEADER + _LZ4_CHECKSUM + data[len(_LZ4_HEADER) + 1 :]


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
