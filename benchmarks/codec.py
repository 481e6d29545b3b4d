"""How fast the codec decodes offset commits on one core, compared with a plain `struct` loop over the same records.

The records mix versions 0 to 4. 1 % are tombstones, and 1 % are broken in several ways.
"""

import random
import struct
import time
from collections.abc import Callable, Iterator

import pyarrow as pa

from benchmarks.results import Result, Samples
from offsetstream.codec import decode_records

ROWS = ("codec",)
_RECORDS, _BATCH, _ROUNDS = 300_000, 100_000, 5  # the size of the job's batches
Records = list[tuple[bytes, bytes | None]]
_TOPIC_IDS = [random.Random(seed).randbytes(16) for seed in range(40)]


def _text(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def _value(rng: random.Random) -> bytes:
    version, metadata = rng.randrange(5), rng.choice([b"", b"", b"", b"host-7:4711"])
    offset, time_ms = rng.randrange(1 << 40), 1_700_000_000_000 + rng.randrange(1 << 32)
    if version in (0, 2):
        return struct.pack(">hq", version, offset) + _text(metadata) + struct.pack(">q", time_ms)
    if version == 1:
        return struct.pack(">hq", 1, offset) + _text(metadata) + struct.pack(">qq", time_ms, time_ms + 86_400_000)
    head = struct.pack(">hqi", version, offset, rng.randrange(-1, 50))
    if version == 3:
        return head + _text(metadata) + struct.pack(">q", time_ms)
    tags = rng.choice([b"\0", b"\1\0\x10" + rng.choice(_TOPIC_IDS)])
    return head + bytes([len(metadata) + 1]) + metadata + struct.pack(">q", time_ms) + tags


def _break(rng: random.Random, key: bytes, value: bytes) -> tuple[bytes, bytes]:
    return rng.choice(
        [
            (key, value[: rng.randrange(len(value))]),
            (key[: rng.randrange(len(key))], value),
            (key, b"\0\x09" + value[2:]),
            (b"\0\x12" + key[2:], value),
            (key, value[:10] + b"\xff\xfe" + value[12:]),
        ]
    )


def make_records(count: int, seed: int = 1) -> Records:
    """Return offset commits as in a busy topic: 1 % are tombstones, 1 % are broken."""
    rng = random.Random(seed)
    records: Records = []
    for _ in range(count):
        group, topic = b"group-%d" % rng.randrange(2000), b"orders-%d" % rng.randrange(40)
        key = struct.pack(">h", 1) + _text(group) + _text(topic) + struct.pack(">i", rng.randrange(64))
        value, fate = _value(rng), rng.random()
        if fate < 0.01:
            records.append(_break(rng, key, value))
        else:
            records.append((key, None if fate < 0.02 else value))
    return records


_COLUMNS = 10


def struct_loop(keys: list[bytes], values: list[bytes | None]) -> list[list[object]]:
    """Decode one record after the other, into a list for each column."""
    columns: list[list[object]] = [[] for _ in range(_COLUMNS)]
    appends = [column.append for column in columns]
    for key, value in zip(keys, values, strict=True):
        try:
            row = _key_row(key) + _value_row(value)
        except (struct.error, ValueError, IndexError) as reason:
            row = (str(reason), *[None] * (_COLUMNS - 1))
        for append, cell in zip(appends, row, strict=True):
            append(cell)
    return columns


_I2, _I4, _I8 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_HQ = struct.Struct(">hq")


def _read_text(buffer: bytes, at: int) -> tuple[str, int]:
    (length,) = _I2.unpack_from(buffer, at)
    if length < 0 or at + 2 + length > len(buffer):
        raise ValueError("bad string")
    return buffer[at + 2 : at + 2 + length].decode("utf-8", "replace"), at + 2 + length


def _key_row(key: bytes) -> tuple[object, ...]:
    (key_type,) = _I2.unpack_from(key)
    if key_type not in (0, 1):
        raise ValueError("unknown type")
    group, at = _read_text(key, 2)
    topic, at = _read_text(key, at)
    return None, group, topic, _I4.unpack_from(key, at)[0]


def _value_row(value: bytes | None) -> tuple[object, ...]:
    if value is None:
        return None, None, None, None, None, None
    version, offset = _HQ.unpack_from(value)
    if not 0 <= version <= 4:
        raise ValueError("unknown version")
    epoch, expires, topic_id = None, None, None
    if version < 3:
        metadata, at = _read_text(value, 10)
    else:
        (epoch,) = _I4.unpack_from(value, 10)
        if version == 3:
            metadata, at = _read_text(value, 14)
        else:
            length = value[14] - 1
            metadata, at = value[15 : 15 + length].decode("utf-8", "replace"), 15 + length
    (time_ms,) = _I8.unpack_from(value, at)
    if version == 1:
        (expires,) = _I8.unpack_from(value, at + 8)
    elif version == 4 and value[at + 8]:
        topic_id = value[at + 11 : at + 27]
    return offset, epoch, metadata, time_ms, expires, topic_id


def _seconds(run: Callable[[], object]) -> float:
    """Return the processor seconds of one run: other work on the machine affects these least."""
    started = time.process_time()
    run()
    return time.process_time() - started


def measure(wanted: set[str], scale: float) -> Iterator[Result]:  # noqa: ARG001 - the signature of all suites
    """Decode the same records both ways, in turn."""
    records = make_records(round(_RECORDS * scale))
    keys, values = [key for key, _ in records], [value for _, value in records]
    key_column, value_column = pa.array(keys, pa.binary()), pa.array(values, pa.binary())
    batches = [(key_column.slice(at, _BATCH), value_column.slice(at, _BATCH)) for at in range(0, len(keys), _BATCH)]
    pa.set_cpu_count(1)
    columns, loop = list[float](), list[float]()
    for _ in range(_ROUNDS):
        columns.append(len(keys) / _seconds(lambda: [decode_records(*batch) for batch in batches]) / 1e6)
        loop.append(len(keys) / _seconds(lambda: struct_loop(keys, values)) / 1e6)
    ours, theirs = (
        Samples.of("codec", "M records/s", columns),
        Samples.of("struct loop", "M records/s", loop),
    )
    yield Result.ratio("codec", ours, theirs, f"{len(keys):,} records in Arrow batches of {_BATCH:,}, processor time")
