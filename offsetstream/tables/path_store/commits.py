"""Commits with delta-rs: their application transactions, and commits that succeeded although the answer was lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from deltalake import CommitProperties, DeltaTable
from deltalake import Transaction as AppTransaction
from deltalake.exceptions import CommitFailedError, DeltaError

from offsetstream.tables.path_store.errors import tables_error, translated_errors
from offsetstream.tables.path_store.features import explain_write_error
from offsetstream.tables.store import Transaction


def commit_of(transactions: Sequence[Transaction], *, alone: bool = False) -> CommitProperties:
    """Return the properties with which delta-rs writes the transactions in a commit.

    `alone`: the commit fails after any other commit since the table was read, even if delta-rs sees no conflict.
    """
    app_transactions = [AppTransaction(*each) for each in transactions]
    return CommitProperties(app_transactions=app_transactions, max_commit_retries=0 if alone else None)


@contextmanager
def committing(table: DeltaTable, transactions: Sequence[Transaction]) -> Iterator[None]:
    """Translate delta-rs's errors of a commit to TablesError; ignore them if the commit succeeded after all.

    If only the store's answer was lost, delta-rs repeats the commit and conflicts with its own first attempt. The
    transactions contain the checkpoint, so no other job has the same ones.
    """
    try:
        yield
    except DeltaError as error:
        if isinstance(error, CommitFailedError) and _is_committed(table.table_uri, transactions):
            return
        raise explain_write_error(error, table) or tables_error(error, table.table_uri, "write to") from error


def _is_committed(where: str, transactions: Sequence[Transaction]) -> bool:
    with translated_errors(where):
        current = DeltaTable(where)
    return bool(transactions) and all(current.transaction_version(app) == version for app, version in transactions)
