"""Writes that can be repeated: Delta's application transactions, one per table and step (rule 8).

Delta skips a write whose (app id, version) it has seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

from offsetstream.tables.schema import HISTORY_DAY


@dataclass(frozen=True)
class BatchId:
    """A micro-batch of a checkpoint; ``batch_id`` is -1 for a load, which is done anew rather than skipped."""

    checkpoint_id: int
    batch_id: int

    @property
    def version(self) -> int:
        """The version of the batch's transactions: greater in a later checkpoint, whatever its batch ids."""
        return (self.checkpoint_id << 32) | (self.batch_id + 1)

    @property
    def is_load(self) -> bool:
        """Whether this is a load, not a batch of the stream."""
        return self.batch_id < 0

    def signature(self, day: date) -> dict[str, Any]:
        """Return the columns of a history's row that say who wrote it, and on which day."""
        return {"checkpoint_id": self.checkpoint_id, "batch_id": self.batch_id, HISTORY_DAY: day}


def app_id(table: str) -> str:
    """Return the id under which the batches that the table has are counted."""
    return f"offsetstream/{table}/batch"


def load_app_id(table: str) -> str:
    """Return the id under which writes to the table that belong to no batch are counted."""
    return f"offsetstream/{table}/load"
