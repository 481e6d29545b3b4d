"""The offsets partition of a group in Redpanda: a jump hash of its id's xxhash64 (as in coordinator_ntp_mapper)."""

from __future__ import annotations

_ALL = 2**64 - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def redpanda_partition_for(group_id: str, partitions: int) -> int:
    key, found, following = xxhash64(group_id.encode()), -1, 0
    while following < partitions:
        found, key = following, (key * 2862933555777941757 + 1) & _ALL
        following = int((found + 1) * (2**31 / ((key >> 33) + 1)))
    return found


def xxhash64(data: bytes) -> int:
    at, hashed = 0, _P5
    if len(data) >= 32:
        lanes = [(_P1 + _P2) & _ALL, _P2, 0, -_P1 & _ALL]
        for at in range(0, len(data) - 31, 32):
            lanes = [_round(lane, _word(data, at + 8 * number, 8)) for number, lane in enumerate(lanes)]
        at += 32
        hashed = sum(_turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _ALL
        for lane in lanes:
            hashed = ((hashed ^ _round(0, lane)) * _P1 + _P4) & _ALL
    hashed = (hashed + len(data)) & _ALL
    while at + 8 <= len(data):
        hashed, at = (_turned(hashed ^ _round(0, _word(data, at, 8)), 27) * _P1 + _P4) & _ALL, at + 8
    if at + 4 <= len(data):
        hashed, at = (_turned(hashed ^ _word(data, at, 4) * _P1 & _ALL, 23) * _P2 + _P3) & _ALL, at + 4
    for byte in data[at:]:
        hashed = _turned(hashed ^ byte * _P5 & _ALL, 11) * _P1 & _ALL
    for shift, by in ((33, _P2), (29, _P3)):
        hashed = (hashed ^ hashed >> shift) * by & _ALL
    return hashed ^ hashed >> 32


def _round(lane: int, word: int) -> int:
    return _turned((lane + word * _P2) & _ALL, 31) * _P1 & _ALL


def _turned(number: int, by: int) -> int:
    return (number << by | number >> (64 - by)) & _ALL


def _word(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")
