"""Writes that can be repeated: Delta's application transactions, one per table and step (rule 8).

Delta skips a write whose (app id, version) it has seen, where Spark makes it; the driver asks by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

from offsetstream.errors import LeaseError
from offsetstream.tables.schema import HISTORY_DAY
from offsetstream.tables.store import Snapshot, Transaction


@dataclass(frozen=True)
class BatchId:
    """A micro-batch of a checkpoint; `batch_id` is -1 for a load, which is done anew rather than skipped."""

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


def is_made(table: Snapshot, transaction: Transaction) -> bool:
    """Tell whether the table has the transaction already, or a later one with its id."""
    last = table.transaction_version(transaction.app_id)
    return last is not None and last >= transaction.version


def is_done(table: Snapshot, batch: BatchId) -> bool:
    """Tell whether the table has the batch's transaction already; a load is always done anew."""
    return not batch.is_load and is_made(table, Transaction(app_id(table.name), batch.version))


def transaction_of(table: Snapshot, batch: BatchId) -> Transaction:
    """Return the batch's transaction.

    A batch's is its own, by which a repetition is known and skipped. A load is never skipped, so its version is always
    the table's next one. It has one so that a job whose tables were taken over cannot finish a load that it began: of
    two commits with one app id from the same version, Delta lets the second fail. LeaseError if the table shows that
    a later job wrote already.
    """
    if not batch.is_load:
        return Transaction(app_id(table.name), batch.version)
    last = table.transaction_version(load_app_id(table.name))
    if last is not None and last >> 32 > batch.checkpoint_id:
        raise LeaseError("another job has taken over the lease of these tables: this one stops")
    return Transaction(load_app_id(table.name), max(last or 0, batch.version) + 1)
