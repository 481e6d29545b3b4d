"""Commits of delta-rs: their application transactions, and whether one was made though the store's answer was lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from deltalake import CommitProperties, DeltaTable
from deltalake import Transaction as AppTransaction
from deltalake.exceptions import CommitFailedError, DeltaError

from offsetstream.tables.path_store.errors import in_our_words, told
from offsetstream.tables.path_store.features import explained
from offsetstream.tables.store import Transaction


def commit_of(transactions: Sequence[Transaction], *, alone: bool = False) -> CommitProperties:
    """Return what makes delta-rs write the transactions with a commit to the table as it was read.

    `alone`: it fails if any other commit was made since, also one that delta-rs sees no conflict with.
    """
    made = [AppTransaction(*each) for each in transactions]
    return CommitProperties(app_transactions=made, max_commit_retries=0 if alone else None)


@contextmanager
def committing(table: DeltaTable, transactions: Sequence[Transaction]) -> Iterator[None]:
    """Raise TablesError in our words for what delta-rs raises of a commit; nothing if it was made after all.

    If only the store's answer was lost, a commit that is tried again meets itself. Its transactions name the
    checkpoint, so that nobody else makes the same.
    """
    try:
        yield
    except DeltaError as error:
        if isinstance(error, CommitFailedError) and _is_made(table.table_uri, transactions):
            return
        raise explained(error, table) or in_our_words(error, table.table_uri, "write to") from error


def _is_made(where: str, transactions: Sequence[Transaction]) -> bool:
    with told(where):
        now = DeltaTable(where)
    return bool(transactions) and all(now.transaction_version(app) == version for app, version in transactions)
