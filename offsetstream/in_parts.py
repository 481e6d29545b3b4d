"""Split many items into lists, for work that costs as much for one item as for hundreds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def in_parts(items: Iterable[T], enough: int, size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield lists of items with a total size of at least `enough` each; the last list may have less."""
    part, size = list[T](), 0
    for item in items:
        part.append(item)
        size += size_of(item)
        if size >= enough:
            yield part
            part, size = [], 0
    if part:
        yield part
