"""Committed offsets, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Place: TypeAlias = tuple[str, int]  # topic and partition number


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The committed offset of a partition. If `offset` is None, nothing is committed, or `error` has the reason."""

    offset: int | None
    leader_epoch: int | None = None
    metadata: str = ""
    error: str | None = None


def no_offset(committed: int | None = None) -> str:
    """Return a text for a negative committed offset (None: unknown which, since Kafka's client does not return it)."""
    return f"no offset: {'a negative one' if committed is None else committed} was committed"


def omitted(group_id: str, place: Place, committed: int | None = None) -> str:
    """Return a note that a partition is skipped, because its committed offset is negative."""
    return f"group '{group_id}' {place[0]}-{place[1]} is skipped ({no_offset(committed)})"


def with_offsets(found: Mapping[Place, CommittedOffset]) -> dict[Place, CommittedOffset]:
    """Return the entries that have an offset: clients may commit a negative one, which does not count."""
    return {place: each for place, each in found.items() if each.offset is not None}
