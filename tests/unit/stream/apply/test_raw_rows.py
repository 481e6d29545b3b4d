"""What the raw reader hands on is bounded by bytes, whatever the records are."""

from __future__ import annotations

import gzip
from random import Random

import pyarrow as pa
import pytest

from offsetstream.stream.apply import raw_reader
from offsetstream.stream.apply.raw_reader import RAW_SCHEMA, in_pieces, raw_rows
from testkit.segments import batch, record

GZIP = 1


@pytest.mark.parametrize("seed", range(5))
def test_pieces_are_bounded_or_one_row(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_reader, "PIECE_BYTES", 1000)
    rng = Random(seed)
    sizes = [(rng.choice([None, 0, 3, 500, 999, 5000]), rng.choice([None, 0, 1, 400, 1001])) for _ in range(300)]
    cells = [[None if size is None else rng.randbytes(size) for size in each] for each in zip(*sizes, strict=True)]
    numbers = list(range(len(sizes)))
    rows = pa.table([numbers, numbers, numbers, *cells], schema=RAW_SCHEMA)
    pieces = list(in_pieces([rows]))
    assert pa.Table.from_batches(pieces, RAW_SCHEMA).equals(rows)
    lengths = [
        sum(len(cell or b"") for each in ("key", "value") for cell in piece[each].to_pylist()) for piece in pieces
    ]
    assert all(length <= 1000 or piece.num_rows == 1 for length, piece in zip(lengths, pieces, strict=True))
    assert len(pieces) < 300
    assert list(in_pieces([RAW_SCHEMA.empty_table()])) == []


def test_batches_that_may_be_large_are_not_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_reader, "_MOST_HELD", 10_000)
    body = gzip.compress(record(0, b"key", b"v" * 100_000))
    compressed = [batch(number, [(b"key", b"")], GZIP, body=body) for number in range(4)]
    plain = [batch(number, [(b"key", b"value")]) for number in range(4, 20)]
    tables = list(raw_rows(7, [*compressed, *plain], 0, 100))
    assert [rows.num_rows for rows in tables] == [2, 2, 16]  # each compressed one counts as 32 times its bytes
    assert [offset for rows in tables for offset in rows["record_offset"].to_pylist()] == list(range(20))
