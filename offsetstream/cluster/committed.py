"""What coordinators answer about committed offsets, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Place: TypeAlias = tuple[str, int]  # a topic and a partition of it


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """What a coordinator has for a partition: no `offset` where nothing is committed, or an `error` says why not."""

    offset: int | None
    leader_epoch: int | None = None
    metadata: str = ""
    error: str | None = None


def no_offset(committed: int | None = None) -> str:
    """Say why what was committed is no offset; Kafka's own client tells of none below zero which it was."""
    return f"no offset: {'one below zero' if committed is None else committed} was committed"


def omitted(group_id: str, place: Place, committed: int | None = None) -> str:
    """Say that a partition is left out, since what was committed for it is no offset."""
    return f"group '{group_id}' {place[0]}-{place[1]} is left out ({no_offset(committed)})"


def with_offsets(found: Mapping[Place, CommittedOffset]) -> dict[Place, CommittedOffset]:
    """Return those that have an offset: a client may commit one below zero, which is none."""
    return {place: each for place, each in found.items() if each.offset is not None}
