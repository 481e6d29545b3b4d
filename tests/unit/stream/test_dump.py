"""How a dump is cut into pieces; that it prints what Kafka prints is shown in tests/kafka/test_dump.py."""

from random import Random

import pytest

from offsetstream.stream.dump import cut


@pytest.mark.parametrize("seed", range(20))
def test_pieces_are_whole_and_in_order(seed: int) -> None:
    rng = Random(seed)
    starts = {number: rng.randrange(100) for number in rng.sample(range(60), 50)}
    ranges = {number: (start, start + rng.choice([0, 0, 1, 7, 300])) for number, start in starts.items()}
    size = rng.choice([1, 2, 100, 10_000])
    pieces = list(cut(ranges, size))
    offsets = [[(number, at) for number, (start, end) in piece.items() for at in range(start, end)] for piece in pieces]
    whole = [(number, at) for number, (start, end) in sorted(ranges.items()) for at in range(start, end)]
    assert [offset for piece in offsets for offset in piece] == whole
    assert all(len(piece) == size for piece in offsets[:-1])
    assert 0 < len(offsets[-1]) <= size


def test_nothing_to_cut() -> None:
    assert list(cut({}, 0)) == []
    assert list(cut({3: (5, 5)}, 0)) == []
