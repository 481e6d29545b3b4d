"""Scala's text forms, as far as Kafka's old formatters print them."""

from offsetstream.java_hash import java_hash

_FIRST_TABLE = 16
_LOAD_FACTOR = 0.75


def option(value: object) -> str:
    """Print an Option: `Some(x)` or `None`."""
    return "None" if value is None else f"Some({value})"


def in_hash_map_order(keys: list[str]) -> list[str]:
    """Return distinct strings in the order in which Scala 2.13's mutable HashMap prints them as keys."""
    size = _FIRST_TABLE
    while len(keys) >= int(size * _LOAD_FACTOR):
        size *= 2
    hashes = {key: _spread(java_hash(key)) for key in keys}
    return sorted(keys, key=lambda key: (hashes[key] & (size - 1), hashes[key]))


def _spread(value: int) -> int:
    mixed = (value ^ (value & 0xFFFFFFFF) >> 16) & 0xFFFFFFFF
    return mixed - (1 << 32) if mixed >= 1 << 31 else mixed
