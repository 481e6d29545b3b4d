"""Commits from a version that was read: which the table has, and the stamp by which a stale one fails.

A write of Spark's begins with the newest version, whatever was read before, and carries one application transaction,
which no SQL shows afterwards. So ours count: each commit's transaction has the next number of its kind (`CHANGES`, or
`APPENDS`, which a history lets through beside changes). Delta skips a commit whose number is there, and of two beside
each other fails one. The versions of the job's own transactions are in the commit's user metadata, which DESCRIBE
HISTORY shows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from pyspark.sql import SparkSession

from offsetstream.tables.store import Transaction

CHANGES, APPENDS = "offsetstream/changes", "offsetstream/appends"
_OURS = "offsetstream"  # in the user metadata, where a platform's own may stand beside
_AT_ONCE = 16  # commits; more are asked for where these do not reach back to what is known
_SESSION = {
    "txnAppId": "spark.databricks.delta.write.txnAppId",
    "txnVersion": "spark.databricks.delta.write.txnVersion",
    "userMetadata": "spark.databricks.delta.commitInfo.userMetadata",
}


@dataclass(frozen=True)
class TableState:
    """A version of a table, the transactions that it has, and who made those of its commits that were looked at."""

    version: int
    transactions: Mapping[str, int]
    commits: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Stamp:
    """What a commit carries: the next number of its kind, and in `note` the transactions after it."""

    commit: str
    kind: str
    number: int
    note: str

    @classmethod
    def after(cls, state: TableState, kind: str, transactions: Sequence[Transaction]) -> Stamp:
        """Return the stamp of a commit to the table as it was read."""
        commit, number = uuid4().hex, state.transactions[kind] + 1
        has = {**state.transactions, **dict(transactions), kind: number}
        return cls(commit, kind, number, _noted(commit, state.version, has))

    @property
    def options(self) -> dict[str, str]:
        """The stamp for a DataFrame's write."""
        return {"txnAppId": self.kind, "txnVersion": str(self.number), "userMetadata": self.note}

    @contextmanager
    def on(self, session: SparkSession) -> Iterator[None]:
        """Stamp what the session writes meanwhile: MERGE takes no options."""
        for option, value in self.options.items():
            session.conf.set(_SESSION[option], value)
        try:
            yield
        finally:
            for name in _SESSION.values():
                session.conf.unset(name)


@contextmanager
def as_first(session: SparkSession) -> Iterator[None]:
    """Have the session note meanwhile, with the table that it makes, that there is no commit yet."""
    session.conf.set(_SESSION["userMetadata"], _noted(uuid4().hex, -1, {CHANGES: 0, APPENDS: 0}))
    try:
        yield
    finally:
        session.conf.unset(_SESSION["userMetadata"])


def anchor(state: TableState, kind: str) -> Stamp:
    """Return the stamp of the first commit to a table whose numbers are not known: none is above the version's."""
    return Stamp.after(TableState(state.version, {**state.transactions, kind: state.version}), kind, ())


def table_state(spark: SparkSession, table: str, known: TableState | None = None) -> TableState:
    """Return the table's state; `known` is an earlier one, of which only what came since is asked."""
    limit = _AT_ONCE
    while True:
        found = spark.sql(f"DESCRIBE HISTORY {table} LIMIT {limit}").select("version", "userMetadata").collect()
        notes = [(row["version"], _note_of(row["userMetadata"])) for row in found]
        newest, oldest = notes[0][0], notes[-1][0]
        if known is not None and known.version <= newest and oldest <= known.version + 1:
            return _folded(newest, [note for version, note in notes if version > known.version], known.transactions)
        # What the newest note was made from has all that was there before.
        read = next((note["read"] for _, note in notes if note), None)
        if len(notes) < limit or (read is not None and oldest <= read + 1):
            return _folded(newest, [note for version, note in notes if read is None or version > read], {})
        limit *= 8


def _folded(version: int, notes: Sequence[Mapping], before: Mapping[str, int]) -> TableState:  # type: ignore[type-arg]
    # Versions and numbers only rise, and a commit that was let through does not know those beside it.
    has = dict(before)
    for note in notes:
        for app, number in note.get("transactions", {}).items():
            has[app] = max(has.get(app, number), number)
    return TableState(version, has, frozenset(note["commit"] for note in notes if note))


def _noted(commit: str, read: int, transactions: Mapping[str, int]) -> str:
    return json.dumps({_OURS: {"commit": commit, "read": read, "transactions": transactions}})


def _note_of(metadata: str | None) -> Mapping:  # type: ignore[type-arg]
    """Return our note of a commit, empty where there is none: of somebody else's commit, or an OPTIMIZE."""
    try:
        found = json.loads(metadata or "{}")
        return dict(found.get(_OURS) or {}) if isinstance(found, dict) else {}
    except ValueError:
        return {}
