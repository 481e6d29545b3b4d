"""A cell: the last live record of one key. A group is derived from its cells."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Cell:
    """The last record of one key, unless it is a tombstone.

    `key_type` is the first number of the key (reference 1.1). `key` and `value` are the data of Kafka's own JSON
    (reference 8.2: bytes as base64; a tagged field that equals its default is absent). `record_offset` is the record's
    offset in its offsets partition, `record_timestamp_ms` its timestamp in milliseconds since 1970.
    """

    key_type: int
    key: dict[str, Any]
    value_version: int
    value: dict[str, Any]
    record_offset: int
    record_timestamp_ms: int | None

    @property
    def member_id(self) -> str:
        """The member id in the key. Raises KeyError if the key has none."""
        member_id: str = self.key["memberId"]
        return member_id


def latest(cells: Iterable[Cell]) -> Cell:
    """Return the cell whose record is the last in the log. Raises ValueError if there is none."""
    return max(cells, key=lambda cell: cell.record_offset)
