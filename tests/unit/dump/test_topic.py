"""How a dump is cut and written. tests/kafka/every_group/test_dump.py compares its output with Kafka's."""

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from offsetstream.codec.records import encode_record
from offsetstream.dump.formats import RAW_SCHEMA
from offsetstream.dump.topic import cut_ranges, text_writer


@pytest.mark.parametrize("seed", range(20))
def test_pieces_cover_all_offsets_in_order(seed: int) -> None:
    rng = Random(seed)
    starts = {number: rng.randrange(100) for number in rng.sample(range(60), 50)}
    ranges = {number: (start, start + rng.choice([0, 0, 1, 7, 300])) for number, start in starts.items()}
    size = rng.choice([1, 2, 100, 10_000])
    pieces = list(cut_ranges(ranges, size))
    offsets = [[(number, at) for number, (start, end) in piece.items() for at in range(start, end)] for piece in pieces]
    whole = [(number, at) for number, (start, end) in sorted(ranges.items()) for at in range(start, end)]
    assert [offset for piece in offsets for offset in piece] == whole
    assert all(len(piece) == size for piece in offsets[:-1])
    assert 0 < len(offsets[-1]) <= size


def test_empty_ranges_give_no_pieces() -> None:
    assert list(cut_ranges({}, 0)) == []
    assert list(cut_ranges({3: (5, 5)}, 0)) == []


def _batch(places: list[tuple[int, int]], value: bytes | None) -> pa.RecordBatch:
    key, _ = encode_record({"type": 1, "data": {"group": "g", "topic": "t", "partition": 0}}, None)
    rows = [{"partition": n, "offset": at, "timestamp": 1, "key": key, "value": value} for n, at in places]
    batch = pa.RecordBatch.from_pylist(rows, RAW_SCHEMA)
    return batch.rename_columns(["offsets_partition", "record_offset", "record_timestamp", "key", "value"])


def test_file_names_sort_in_record_order(tmp_path: Path) -> None:
    batches = [[(10, 998), (10, 999), (9, 5)], [], [(9, 12), (2, 0), (10, 1000)]]
    write = text_writer(str(tmp_path), "records")
    assert list(write(_batch(places, None) for places in batches)) == []
    text = "".join(file.read_text() for file in sorted(tmp_path.iterdir()))
    key = '"key":"AAEAAWcAAXQAAAAA","value":null'
    places = sorted(place for batch in batches for place in batch)
    assert text == "".join(f'{{"partition":{n},"offset":{at},"timestamp":1,{key}}}\n' for n, at in places)


def test_unprintable_records_are_counted(tmp_path: Path) -> None:
    write = text_writer(str(tmp_path), "kafka")
    batches = [_batch([(10, 7)], None), _batch([(9, 5), (9, 6), (3, 8)], b"\0")]
    assert [row for batch in write(batches) for row in batch.to_pylist()] == [
        {"offsets_partition": 3, "record_offset": 8, "reason": "truncated value", "count": 3}
    ]
    assert "".join(file.read_text() for file in tmp_path.iterdir()).count("\n") == 1
