"""CRC-32C (Castagnoli, RFC 3720) of many byte strings at once: whole arrays instead of a loop over bytes.

Without its initial value a CRC is linear: the CRC of two strings together is the CRC of the first, moved on by as many
zero bytes as the second has, XOR the CRC of the second. So all words of eight bytes are looked up side by side, and
then neighbours are joined in pairs, and pairs of pairs, until one number is left of each string.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_POLYNOMIAL = 0x82F63B78  # bits reflected
_WORD = 8
_INITIAL = 4  # bytes of ones, XOR the first bytes of a string

Numbers = npt.NDArray[np.uint32]


def crc32c(texts: Sequence[bytes | memoryview]) -> Numbers:
    """Return the CRC-32C of each string, none of which may be shorter than four bytes."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    if not len(texts):
        return lengths.astype(np.uint32)
    words = -(-lengths // _WORD)
    fill = [bytes(count) for count in range(_WORD)]  # zeros in front change no CRC
    pieces = (piece for text in texts for piece in (fill[-len(text) % _WORD], text))
    data = np.frombuffer(bytearray().join(pieces), np.uint8)
    starts = np.cumsum(words) * _WORD - lengths
    data[starts[:, None] + np.arange(_INITIAL)] ^= 0xFF
    columns = data.reshape(-1, _WORD)
    found: Numbers = np.bitwise_xor.reduce([_ZEROS_AFTER[-1 - at][columns[:, at]] for at in range(_WORD)])
    return _join(found, words) ^ np.uint32(0xFFFFFFFF)


def _join(found: Numbers, counts: npt.NDArray[np.int64]) -> Numbers:
    """Join the CRCs of each string's words, `counts` of them one after the other, into one."""
    moved = _ZEROS_AFTER[:-5:-1]  # what each of the four bytes of a CRC becomes, a word of zeros later
    while counts.max() > 1:
        odd = counts & 1
        paired = np.zeros(len(found) + odd.sum(), np.uint32)
        paired[np.arange(len(found)) + np.repeat(np.cumsum(odd), counts)] = found
        found = _move(moved, paired[::2]) ^ paired[1::2]
        counts = (counts + odd) // 2
        moved = _move(moved, moved)
    return found


def _move(moved: Numbers, crcs: Numbers) -> Numbers:
    joined: Numbers = np.bitwise_xor.reduce([moved[at][(crcs >> (8 * at)) & 0xFF] for at in range(4)])
    return joined


def _tables() -> Numbers:
    """Return the CRC of each byte (column) with so many zero bytes after it (row)."""
    crcs = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crcs = np.where(crcs & 1, crcs >> 1 ^ np.uint32(_POLYNOMIAL), crcs >> 1)
    rows = [crcs]
    while len(rows) < _WORD:
        rows.append(rows[0][rows[-1] & 0xFF] ^ (rows[-1] >> 8))
    return np.array(rows)


_ZEROS_AFTER = _tables()
