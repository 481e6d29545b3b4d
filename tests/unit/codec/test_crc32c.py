"""The CRC-32C of many strings equals a bitwise CRC of each, and the vectors of RFC 3720."""

from random import Random

from offsetstream.codec.crc32c import crc32c
from testkit import segments


def test_vectors_of_rfc_3720() -> None:
    texts = [bytes(32), b"\xff" * 32, bytes(range(32)), bytes(range(31, -1, -1)), b"123456789"]
    assert crc32c(texts).tolist() == [0x8A9136AA, 0x62A8AB43, 0x46DD794E, 0x113FDB5C, 0xE3069283]


def test_strings_of_any_length_are_computed_together() -> None:
    rng = Random(1)
    texts = [rng.randbytes(length) for length in [*range(4, 140), 1000, 1023, 1024, 1025, 4096]]
    rng.shuffle(texts)
    assert crc32c(texts).tolist() == [segments.crc32c(text) for text in texts]
    assert crc32c([]).tolist() == []
