"""Delta's application transactions, as delta-rs takes them."""

from __future__ import annotations

from collections.abc import Sequence

from deltalake import CommitProperties
from deltalake import Transaction as AppTransaction

from offsetstream.tables.store import Transaction


def commit_of(transactions: Sequence[Transaction]) -> CommitProperties:
    """Return what makes delta-rs write the transactions with a commit to the table as it was read."""
    return CommitProperties(app_transactions=[AppTransaction(*each) for each in transactions])
