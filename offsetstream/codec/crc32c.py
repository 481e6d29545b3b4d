"""CRC-32C (Castagnoli, RFC 3720) of many byte strings at once, with NumPy arrays instead of a loop over bytes.

Without its initial value, a CRC is linear: the CRC of a + b is the CRC of a, shifted by as many zero bytes as b has,
XOR the CRC of b. So the CRCs of all 8-byte words are looked up in parallel. Then neighbours are combined in pairs, and
these in pairs again, until each string has one CRC.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_POLYNOMIAL = 0x82F63B78  # bits reflected
_WORD = 8
_INITIAL = 4  # the initial value, all ones, is XORed into this many first bytes

Numbers = npt.NDArray[np.uint32]


def crc32c(texts: Sequence[bytes | memoryview]) -> Numbers:
    """Return the CRC-32C of each string. Every string must have at least four bytes."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    if not len(texts):
        return lengths.astype(np.uint32)
    words = -(-lengths // _WORD)
    fill = [bytes(count) for count in range(_WORD)]  # leading zeros do not change a CRC
    pieces = (piece for text in texts for piece in (fill[-len(text) % _WORD], text))
    data = np.frombuffer(bytearray().join(pieces), np.uint8)
    starts = np.cumsum(words) * _WORD - lengths
    data[starts[:, None] + np.arange(_INITIAL)] ^= 0xFF
    columns = data.reshape(-1, _WORD)
    crcs: Numbers = np.bitwise_xor.reduce([_ZEROS_AFTER[-1 - at][columns[:, at]] for at in range(_WORD)])
    return _combine(crcs, words) ^ np.uint32(0xFFFFFFFF)


def _combine(crcs: Numbers, counts: npt.NDArray[np.int64]) -> Numbers:
    """Combine the CRCs of each string's words into one. `counts` has the number of words of each string."""
    shifted = _ZEROS_AFTER[:-5:-1]  # what each of a CRC's four bytes becomes after a word of zeros
    while counts.max() > 1:
        odd = counts & 1
        paired = np.zeros(len(crcs) + odd.sum(), np.uint32)
        paired[np.arange(len(crcs)) + np.repeat(np.cumsum(odd), counts)] = crcs
        crcs = _shift(shifted, paired[::2]) ^ paired[1::2]
        counts = (counts + odd) // 2
        shifted = _shift(shifted, shifted)
    return crcs


def _shift(shifted: Numbers, crcs: Numbers) -> Numbers:
    joined: Numbers = np.bitwise_xor.reduce([shifted[at][(crcs >> (8 * at)) & 0xFF] for at in range(4)])
    return joined


def _tables() -> Numbers:
    """Return the CRC of each byte (column) followed by that many zero bytes (row)."""
    crcs = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crcs = np.where(crcs & 1, crcs >> 1 ^ np.uint32(_POLYNOMIAL), crcs >> 1)
    rows = [crcs]
    while len(rows) < _WORD:
        rows.append(rows[0][rows[-1] & 0xFF] ^ (rows[-1] >> 8))
    return np.array(rows)


_ZEROS_AFTER = _tables()
