"""Commits based on the version that was read: each has a stamp, which makes a commit based on a stale version fail.

A Spark write always starts from the newest version, even if older rows were read. It can carry one application
transaction, which SQL does not show afterwards. So our commits are numbered: each commit's transaction has the next
number of its kind. The kinds are `CHANGES` and `APPENDS`; a history allows appends while changes are made. Delta skips
a commit whose number the table already has, and of two concurrent commits with the same number it fails one. The
versions of the job's own transactions are in the commit's user metadata, which DESCRIBE HISTORY shows.

MERGE can take the stamp of a commit only from its session, and only a session says which version it committed last. So
each table has sessions of its own for writes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import uuid4

from pyspark.sql import SparkSession

from offsetstream.tables.sql import quoted
from offsetstream.tables.store import Transaction

CHANGES, APPENDS = "offsetstream/changes", "offsetstream/appends"
_KEY = "offsetstream"  # key of our note in the user metadata, which may also have a platform's own entries
_FIRST_LIMIT = 16  # commits to read; more are read if these do not reach back to a known version
_SESSION = {
    "txnAppId": "spark.databricks.delta.write.txnAppId",
    "txnVersion": "spark.databricks.delta.write.txnVersion",
    "userMetadata": "spark.databricks.delta.commitInfo.userMetadata",
}


@dataclass(frozen=True)
class TableState:
    """A version of a table: its transactions, and the ids of those of our commits that were read."""

    version: int
    transactions: Mapping[str, int]
    commits: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Stamp:
    """The stamp of a commit: the next number of its kind, and in `note` (JSON) the transactions after the commit.

    `done` is the table's state after the commit, if nobody else commits.
    """

    commit: str
    kind: str
    number: int
    note: str
    done: TableState

    @classmethod
    def after(cls, state: TableState, kind: str, transactions: Sequence[Transaction]) -> Stamp:
        """Return the stamp of a commit to the table in this state."""
        commit, number = uuid4().hex, state.transactions[kind] + 1
        versions = {**state.transactions, **dict(transactions), kind: number}
        done = TableState(state.version + 1, versions, frozenset({commit}))
        return cls(commit, kind, number, _note(commit, state.version, versions), done)

    @property
    def options(self) -> dict[str, str]:
        """The stamp as options of a DataFrame write."""
        return {"txnAppId": self.kind, "txnVersion": str(self.number), "userMetadata": self.note}

    @contextmanager
    def on(self, session: SparkSession) -> Iterator[None]:
        """Set the stamp in the session while the context runs, because MERGE takes no options."""
        for option, value in self.options.items():
            session.conf.set(_SESSION[option], value)
        try:
            yield
        finally:
            for name in _SESSION.values():
                session.conf.unset(name)


@contextmanager
def as_first_commit(session: SparkSession) -> Iterator[None]:
    """Add a note to the table that the session creates in this context: it has no numbered commit yet."""
    session.conf.set(_SESSION["userMetadata"], _note(uuid4().hex, -1, {CHANGES: 0, APPENDS: 0}))
    try:
        yield
    finally:
        session.conf.unset(_SESSION["userMetadata"])


def first_stamp(state: TableState, kind: str) -> Stamp:
    """Return the stamp of a commit to a table whose last number is unknown: it cannot be above the version."""
    return Stamp.after(TableState(state.version, {**state.transactions, kind: state.version}), kind, ())


def table_state(spark: SparkSession, table: str, known: TableState | None = None) -> TableState:
    """Return the table's current state; with an earlier state `known`, only later commits are read."""
    limit = _FIRST_LIMIT
    while True:
        found = spark.sql(f"DESCRIBE HISTORY {table} LIMIT {limit}").select("version", "userMetadata").collect()
        notes = [(row["version"], _parse_note(row["userMetadata"])) for row in found]
        newest, oldest = notes[0][0], notes[-1][0]
        if known is not None and known.version <= newest and oldest <= known.version + 1:
            return _folded(newest, [note for version, note in notes if version > known.version], known.transactions)
        # The newest note contains all transactions up to the version from which it was made.
        read = next((note["read"] for _, note in notes if note), None)
        if len(notes) < limit or (read is not None and oldest <= read + 1):
            return _folded(newest, [note for version, note in notes if read is None or version > read], {})
        limit *= 8


def _folded(version: int, notes: Sequence[Mapping], before: Mapping[str, int]) -> TableState:  # type: ignore[type-arg]
    # Take the maximum: versions only rise, but a note does not know of concurrent commits.
    transactions = dict(before)
    for note in notes:
        for app, number in note.get("transactions", {}).items():
            transactions[app] = max(transactions.get(app, number), number)
    return TableState(version, transactions, frozenset(note["commit"] for note in notes if note))


def _note(commit: str, read: int, transactions: Mapping[str, int]) -> str:
    return json.dumps({_KEY: {"commit": commit, "read": read, "transactions": transactions}})


def _parse_note(metadata: str | None) -> Mapping:  # type: ignore[type-arg]
    """Return our note in a commit's user metadata; empty for a commit of somebody else, or an OPTIMIZE."""
    try:
        found = json.loads(metadata or "{}")
        return dict(found.get(_KEY) or {}) if isinstance(found, dict) else {}
    except ValueError:
        return {}


_LAST_VERSION = "spark.databricks.delta.lastCommitVersionInSession"  # Delta sets it after each commit


class WriterSession:
    """A session in which one thread after the other writes to one table."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = copied_session(spark)
        self._turn = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Keep other threads from writing in this session while the context runs."""
        with self._turn:
            self.spark.conf.unset(_LAST_VERSION)
            yield

    @property
    def committed_version(self) -> int | None:
        """The version of the last commit in this turn; None if there was none, or if Delta does not say it."""
        version = self.spark.conf.get(_LAST_VERSION, None)
        return int(version) if version is not None and version.isdecimal() else None


class WriterSessions:
    """Sessions for writes, one for each table and kind of commit, with the settings of the original session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._sessions: dict[tuple[str, str], WriterSession] = {}
        self._lock = threading.Lock()

    def of(self, table: str, kind: str) -> WriterSession:
        """Return the session for commits of a kind to a table."""
        with self._lock:
            if (table, kind) not in self._sessions:
                self._sessions[table, kind] = WriterSession(self._spark)
            return self._sessions[table, kind]


def copied_session(spark: SparkSession) -> SparkSession:
    """Return a new session with the settings of the given one."""
    # newSession() has the settings at the start, without later ones such as the time zone.
    session = spark.newSession()
    for name, value in spark.conf.getAll.items():
        if spark.conf.isModifiable(name) and session.conf.get(name, None) != value:
            session.conf.set(name, value)
    return session


@dataclass(frozen=True)
class CatalogTables:
    """The tables of a catalog's schema as a Spark session reads and writes them; `place` is catalog and schema.

    `sizes`: by table, a version and its bytes. `committed`: in a job, by table, the state in which it left it.
    """

    place: tuple[str, str]
    spark: SparkSession
    writers: WriterSessions
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    committed: dict[str, TableState] | None = None

    @property
    def name(self) -> str:
        """The name as catalog.schema."""
        return ".".join(self.place)

    def table(self, name: str) -> str:
        """Return the table's quoted name in SQL."""
        return ".".join(map(quoted, (*self.place, name)))
