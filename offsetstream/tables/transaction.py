"""Repeatable writes, by Delta's application transactions: one per table and step (rule 8); several at once.

A write that lost against another commit, such as an OPTIMIZE, is tried again (`again_on_conflict`).

Spark's Delta skips a write whose app id and version the table already has. The driver checks this itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from typing import Any

from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from offsetstream.errors import ConflictError, LeaseError
from offsetstream.tables.schema import HISTORY_DAY, all_schemas
from offsetstream.tables.store import Snapshot, Store, Transaction

# Only for functions that open the table themselves, so that each attempt sees the commit that won. They must take no
# iterator: the next attempt would find it at its end.
again_on_conflict = retry(
    retry=retry_if_exception_type(ConflictError),
    stop=stop_after_attempt(8),
    wait=wait_random_exponential(multiplier=0.05, max=2),
    reraise=True,
)
TAKEN_OVER = "another job has taken over the lease of these tables: this one stops"


@dataclass(frozen=True)
class BatchId:
    """A micro-batch of a checkpoint. `batch_id` is -1 for a load, which is repeated and never skipped.

    `has_more`: other writes of this batch to the same table follow. Until the last, the batch counts as not written.
    """

    checkpoint_id: int
    batch_id: int
    has_more: bool = False

    @property
    def version(self) -> int:
        """The version of the batch's transactions; a later checkpoint always has greater ones."""
        return (self.checkpoint_id << 32) | (self.batch_id + 1)

    @property
    def is_load(self) -> bool:
        """Whether this is a load, not a batch of the stream."""
        return self.batch_id < 0

    def signature(self, day: date | None = None) -> dict[str, Any]:
        """Return the columns that say which batch wrote a history's row, and on which day (None: today)."""
        day = day or datetime.now(UTC).date()
        return {"checkpoint_id": self.checkpoint_id, "batch_id": self.batch_id, HISTORY_DAY: day}


NO_BATCH = BatchId(0, -1)  # no checkpoint: neither a batch nor a load of a job


def app_id(table: str) -> str:
    """Return the app id of the table's batch writes."""
    return f"offsetstream/{table}/batch"


def load_app_id(table: str) -> str:
    """Return the app id of the table's load writes, which belong to no batch."""
    return f"offsetstream/{table}/load"


def _anew_app_id(table: str) -> str:
    """Return the app id that marks a table as made anew: no job has written it since the batch of the same version."""
    return f"offsetstream/{table}/anew"


def shut_out_older_everywhere(tables: Store, batch: BatchId) -> None:
    """Do what `shut_out_older` does in every table, at once."""
    in_parallel([partial(shut_out_older, tables, name, batch) for name in all_schemas()])


@again_on_conflict
def shut_out_older(tables: Store, name: str, batch: BatchId, *, is_anew: bool = False) -> None:
    """Commit an empty write to the table. After it, no job with an older checkpoint can write to it.

    `is_anew`: the table was made anew. It still counts as one that no job has written.
    """
    apps = (app_id, load_app_id, *((_anew_app_id,) if is_anew else ()))
    tables.open(name).commit_nothing(*(Transaction(app(name), batch.version) for app in apps))


def last_checkpoint_id(tables: Store, names: Iterable[str] | None = None) -> int:
    """Return the greatest checkpoint id in any table (or of `names`), 0 if there is none.

    The lease has it too, but may be lost.
    """
    return max((version >> 32 for version in batch_versions(tables, names).values() if version is not None), default=0)


def batch_versions(tables: Store, names: Iterable[str] | None = None) -> dict[str, int | None]:
    """Return the version of the last batch of each table (or of `names`).

    It is None if no job has written the table, or not since it was made anew.
    """
    return {name: _batch_version(tables.open(name)) for name in (all_schemas() if names is None else names)}


def _batch_version(table: Snapshot) -> int | None:
    version = table.transaction_version(app_id(table.name))
    return None if version == table.transaction_version(_anew_app_id(table.name)) else version


def is_made(table: Snapshot, transaction: Transaction) -> bool:
    """Return whether the table has the transaction, or a later one with its app id."""
    last = table.transaction_version(transaction.app_id)
    return last is not None and last >= transaction.version


def is_done(table: Snapshot, batch: BatchId) -> bool:
    """Return whether the table has the batch's transaction; always false for a load."""
    return not batch.is_load and is_made(table, Transaction(app_id(table.name), batch.version))


def transaction_of(table: Snapshot, batch: BatchId) -> Transaction:
    """Return the transaction for a write of the batch to the table.

    A batch has a fixed transaction, so that its repetition is recognised and skipped. While it has more writes, it has
    that of the batch before.

    A load is never skipped: its version is the table's next one. It needs a transaction so that a job that lost the
    lease cannot finish a load: of two commits with the same app id from the same version, Delta fails the second.
    LeaseError if a later job has already written to the table.
    """
    if not batch.is_load:
        return Transaction(app_id(table.name), batch.version - batch.has_more)
    last = table.transaction_version(load_app_id(table.name))
    if last is not None and last >> 32 > batch.checkpoint_id:
        raise LeaseError(TAKEN_OVER)
    return Transaction(load_app_id(table.name), max(last or 0, batch.version) + 1)


Step = Callable[[], object]


def in_parallel(steps: Sequence[Step], in_thread: Callable[[Step], Step] = lambda step: step) -> None:
    """Run the steps in parallel and wait for all. The first error is raised after all have ended.

    `in_thread` wraps a step for its thread, as `pyspark.inheritable_thread_target` does.
    """
    if len(steps) < 2:  # noqa: PLR2004
        for step in steps:
            step()
        return
    with ThreadPoolExecutor(len(steps)) as pool:
        futures = [pool.submit(in_thread(step)) for step in steps]
    for future in futures:
        future.result()


@contextmanager
def running_alongside(step: Step) -> Iterator[None]:
    """Run the step in a thread while the context runs, then wait for it.

    The step's error is raised, unless the context raised one itself.
    """
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(step)
        yield
    future.result()
