"""Some of many at a time: for what costs as much for one as for hundreds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def in_parts(items: Iterable[T], enough: int, size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield the items in lists of which each has `enough` by the sizes of its items; the last one may have less."""
    held, size = list[T](), 0
    for item in items:
        held.append(item)
        size += size_of(item)
        if size >= enough:
            yield held
            held, size = [], 0
    if held:
        yield held
