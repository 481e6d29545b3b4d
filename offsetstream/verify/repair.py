"""Repair tables whose files were lost or damaged: keep what is readable, get back what the topic has, name the rest.

A table that the job can fill again is set aside. In another one, readable rows stay. The ledger then shows which rows
of a history are gone, and the topic is read for them. What it no longer has is lost: a negative entry of the ledger,
and an event of the offsets partition, name it. Each step can be repeated after a kill.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.cluster.client import Cluster
from offsetstream.tables.create import MADE_ANEW
from offsetstream.tables.files import Damage, TableFolder
from offsetstream.tables.ledger import row_of
from offsetstream.tables.names import (
    CLUSTER,
    DECODED_LOGS,
    DECODED_TABLES,
    JOB_LEASE,
    LEDGER,
    OFFSETS_PARTITIONS,
    PARTITION_EVENTS,
    RECORD_TABLES,
    RECORDS,
    TOPIC_PARTITIONS,
)
from offsetstream.tables.rows import belongs_to, partition_numbers, with_history_columns
from offsetstream.tables.schema import all_schemas, is_history, load_schema
from offsetstream.tables.small_tables import append_to, insert_rows, read_rows, rows_per_partition, update_rows
from offsetstream.tables.sql import in_partitions
from offsetstream.tables.store import EVERY_ROW, Snapshot, Store, Transaction
from offsetstream.tables.tally import Entry, Log
from offsetstream.tables.transaction import (
    BatchId,
    again_on_conflict,
    app_id,
    batch_versions,
    shut_out_older,
    transaction_of,
)
from offsetstream.verify.ledger import counts_by_day, some_at_a_time
from offsetstream.verify.sources import filters_of
from offsetstream.verify.topic import Numbers, joined, read_decoded

LOST = "history lost"  # an event of an offsets partition
_INTERRUPTED = Damage("_damaged", "has its rows: a repair was interrupted")
_AT_ONCE = 200_000  # rows that get back in one commit
_SOURCES = {
    **dict.fromkeys((*DECODED_TABLES, DECODED_LOGS), "derived again from group_records"),
    **dict.fromkeys((TOPIC_PARTITIONS, CLUSTER), "filled again by a look at the cluster"),
    JOB_LEASE: "made anew",
    LEDGER: "counted anew; earlier losses are then unknown",
}
_Say = Callable[[str], None]


@dataclass(frozen=True)
class Loss:
    """Rows of a log that a history had by its ledger, and that nobody has now. `until`: the greatest offset."""

    history: str
    log: Log
    rows: int
    days: tuple[str, ...]
    until: int

    def __str__(self) -> str:
        days = self.days[0] if len(self.days) == 1 else f"{self.days[0]} to {self.days[-1]}"
        rows = f"{self.rows:,} rows" if self.rows else "some rows"
        return f"{rows} of {self.history} up to offset {self.until:,}, written on {days}, are gone"


def find_damage(tables: Store, say: _Say) -> dict[str, list[Damage]]:
    """Return the damage by table. Every page of every file is read.

    It is also damage if a history lacks rows that its ledger counted.
    """
    found = dict[str, list[Damage]]()
    say(f"Reading every file of {len(all_schemas())} tables")
    for name in all_schemas():
        folder = tables.folder(name)
        if folder is not None and (damage := folder.damage() or _interrupted(tables, name, folder)):
            found[name] = damage
    if LEDGER not in found and (ledger := tables.opened(LEDGER)) is not None:
        for name in RECORD_TABLES:
            if name not in found and tables.opened(name) is not None and (lacks := _lacks(ledger, tables, name)) > 0:
                found[name] = [Damage("history_ledger", "counted more rows than there are", lacks)]
    return found


def _lacks(ledger: Snapshot, tables: Store, history: str) -> int:
    said, there = counts_by_day(ledger, tables, history, checksums=False)
    return sum(each.rows for each in said.values()) - sum(each.rows for each in there.values())


def remedy(name: str) -> str:
    """Return what the repair of a damaged table does."""
    if name in MADE_ANEW:
        return _SOURCES.get(name, "filled again from the topic")
    if name in RECORD_TABLES:
        return "keeps its readable rows; others come from the topic if it still has them"
    return "keeps its readable rows"


class Repair:
    """Repairs the damaged tables in `damage`, as their only writer. `say` gets a line about each step.

    `cluster` and its `properties` serve to read the topic; None if no history of records is damaged. `create` creates
    missing tables. `checkpoint_id`: greater than those of all jobs before. One of them may only be suspended;
    when it goes on, it cannot write.
    """

    def __init__(
        self,
        tables: Store,
        damage: Mapping[str, list[Damage]],
        cluster: Cluster | None,
        properties: Mapping[str, str],
        create: Callable[[Collection[str]], None],
        checkpoint_id: int,
        say: _Say,
    ) -> None:
        self._tables = tables
        self._damage = damage
        self._cluster = cluster
        self._properties = properties
        self._create = create
        self._say = say
        self._records = damaged_records(damage)
        self._batch = BatchId(checkpoint_id, -1)

    def run(self) -> list[Loss]:
        """Repair all, and return what is lost."""
        self._shut_out_older(all_schemas().keys() - self._damage.keys())
        self._make_anew([name for name in self._damage if name in MADE_ANEW])
        for name in self._damage:
            if name not in MADE_ANEW:
                self._keep_readable(name)
                self._shut_out_older([name])
        if self._cluster is None:
            return []
        if OFFSETS_PARTITIONS in self._damage:  # it says up to where each log is applied
            self._say(f"Start the job once, then repair again: it gets back what {' and '.join(self._records)} lost")
            return []
        for name, rows in self._get_back(self._cluster).items():
            self._say(f"{name}: {rows:,} rows are back from the topic")
        if LEDGER in self._damage:
            self._say("Without the ledger nobody can tell which rows are lost: no history counts as complete")
            self._withdraw(range(1 << 31))
            losses = []
        else:
            losses = [loss for name in self._records for loss in self._losses(name)]
            if losses:
                self._tell(losses)
        if RECORDS in self._records and (losses or LEDGER in self._damage):
            self._make_anew([*DECODED_TABLES, DECODED_LOGS])  # derived from the group records
        if LEDGER not in self._damage:
            for name in self._records:
                self._correct(name)
        return losses

    def _shut_out_older(self, names: Iterable[str]) -> None:
        """Let no job with an older checkpoint write to the tables, except to those that no job has written."""
        for name, version in batch_versions(self._tables, names).items():
            if version is not None:
                shut_out_older(self._tables, name, self._batch)

    def _make_anew(self, names: Collection[str]) -> None:
        for name in names:
            if (folder := self._tables.folder(name)) is not None:
                self._say(f"{name}: moved to {folder.set_aside()}; the next job fills it again")
        self._create(names)
        for name in names:
            shut_out_older(self._tables, name, self._batch, is_anew=True)

    def _keep_readable(self, name: str) -> None:
        folder = self._tables.folder(name)
        assert folder is not None  # noqa: S101 - `find_damage` found it
        if _INTERRUPTED not in self._damage[name]:
            if folder.mend():
                self._say(f"{name}: the readable rows are kept")
                return
            self._say(f"{name}: Delta's log is lost; the files are moved to {folder.set_aside()} and read there")
        self._create([name])
        self._fill(name, folder.salvaged(load_schema(name)) if is_history(name) else iter(()))

    def _fill(self, name: str, rows: Iterator[pa.Table]) -> None:
        """Write all rows of a table in one commit, so that it counts as a table that a job has written."""
        self._tables.open(name).replace(EVERY_ROW, rows, Transaction(app_id(name), self._batch.version))

    def _get_back(self, cluster: Cluster) -> dict[str, int]:
        """Append the records that the topic has and the damaged histories lack; return their number by table."""
        books = {row["offsets_partition"]: row for row in read_rows(self._tables.open(OFFSETS_PARTITIONS))}
        books = {
            number: books[number]
            for number in cluster.topic_partitions()
            if number in books and books[number]["next_offset"]
        }
        sizes = {name: rows_per_partition(self._tables, name) for name in self._records}
        every = {number: sum(size.get(number, 0) for size in sizes.values()) for number in books}
        found, done = dict.fromkeys(self._records, 0), 0
        for numbers in some_at_a_time(every):
            for name, rows in self._missing(cluster, {number: books[number] for number in numbers}):
                found[name] += rows.num_rows
                self._append(name, rows)
            done += len(numbers)
            self._say(f"{done} of {len(every)} offsets partitions read")
        return found

    @again_on_conflict
    def _append(self, name: str, rows: pa.Table) -> None:
        table = self._tables.open(name)
        append_to(table, rows, self._batch, transaction_of(table, self._batch))

    def _missing(self, cluster: Cluster, books: Mapping[int, Mapping[str, Any]]) -> Iterator[tuple[str, pa.Table]]:
        """Yield the missing rows of these partitions' current logs, by table."""
        log_ids = {number: row["log_id"] for number, row in books.items()}
        applied = {number: row["next_offset"] for number, row in books.items()}
        filters = filters_of(books)
        there = {name: _offsets(self._tables.open(name), log_ids) for name in self._records}
        waiting = defaultdict[str, list[pa.Table]](list)
        for records, _ in read_decoded(cluster.bootstrap_server, self._properties, log_ids, filters):
            decoded = records.filter(pc.less(records["record_offset"], partition_numbers(records, applied, 0)))
            for name in self._records:
                mine = decoded.filter(belongs_to(name, decoded))
                lacks = ~np.isin(_places(mine), there[name])
                if lacks.any():
                    waiting[name].append(with_history_columns(name, mine.filter(pa.array(lacks))))
                    if sum(each.num_rows for each in waiting[name]) > _AT_ONCE:
                        yield name, pa.concat_tables(waiting.pop(name))
        for name, parts in waiting.items():
            yield name, pa.concat_tables(parts)

    def _losses(self, history: str) -> list[Loss]:
        """Return the logs of a history whose rows differ from what the ledger counted, in total."""
        changes = defaultdict[Log, list[Entry]](list)
        for each in _changes(self._tables, history):
            changes[each.log].append(each)
        found = []
        for log, each_day in sorted(changes.items()):
            total = sum(each_day[1:], each_day[0])
            if total.rows < 0 or (total.checksum and not total.rows):  # else all rows are back, on another day
                less = [each for each in each_day if each.rows <= 0]
                days = tuple(sorted({each.day for each in less or each_day}))
                until = max(each.last_record_offset for each in less or each_day)
                found.append(Loss(history, log, -total.rows, days, until))
        return found

    def _tell(self, losses: list[Loss]) -> None:
        """Write the losses to the events of the partitions, whose history is not complete any more."""
        by_log = defaultdict[Log, list[str]](list)
        for loss in losses:
            by_log[loss.log].append(str(loss))
        now = datetime.now(UTC)
        rows = {row["offsets_partition"]: row for row in read_rows(self._tables.open(OFFSETS_PARTITIONS))}
        events = [
            {
                "event": LOST,
                "source": "job",
                "event_at": now,
                "offsets_partition": partition,
                "log_id": log_id,
                "load_id": rows.get(partition, {}).get("load_id"),
                "detail": "; ".join(told),
            }
            for (partition, log_id), told in by_log.items()
        ]
        insert_rows(self._tables, PARTITION_EVENTS, events, self._batch)
        self._withdraw({partition for partition, _ in by_log})

    @again_on_conflict
    def _withdraw(self, partitions: Container[int]) -> None:
        """Mark the history of these partitions as not complete. The next job loads them again."""
        update_rows(
            self._tables.open(OFFSETS_PARTITIONS),
            lambda row: {"history_complete_from": None} if row["offsets_partition"] in partitions else None,
        )

    @again_on_conflict
    def _correct(self, history: str) -> None:
        """Make the ledger count the rows that there are: negative entries name those that are lost."""
        if changes := _changes(self._tables, history):
            ledger = self._tables.open(LEDGER)
            rows = [row_of(history, each) for each in changes]
            ledger.append(
                [pa.Table.from_pylist(rows, schema=load_schema(LEDGER).arrow)], transaction_of(ledger, self._batch)
            )


def damaged_records(damage: Collection[str]) -> list[str]:
    """Return the damaged histories of records, whose rows the topic may have."""
    return [name for name in RECORD_TABLES if name in damage]


def _interrupted(tables: Store, name: str, folder: TableFolder) -> list[Damage]:
    """Return this damage if the repair of a history was interrupted: the table is made anew, but not yet filled."""
    table = tables.opened(name)
    is_filled = table is not None and table.transaction_version(app_id(name)) is not None
    return [_INTERRUPTED] if name not in MADE_ANEW and not is_filled and folder.is_aside else []


def _changes(tables: Store, history: str) -> list[Entry]:
    """Return what must be added to the ledger of a history so that it counts the rows that there are."""
    said, there = counts_by_day(tables.open(LEDGER), tables, history, checksums=True)
    found = []
    for key in sorted(said.keys() | there.keys()):
        some = said.get(key) or there[key]
        nothing = replace(some, rows=0, checksum=0)
        change = there.get(key, nothing) - said.get(key, nothing)
        if change.rows or change.checksum:
            found.append(change)
    return found


def _offsets(table: Snapshot, log_ids: Mapping[int, int]) -> Numbers:
    """Return the places of the rows of these logs."""
    query = f"SELECT offsets_partition, log_id, record_offset FROM rows WHERE {in_partitions(list(log_ids))}"  # noqa: S608 - ours
    found = [np.zeros(0, np.int64)]
    for batch in table.query(query):
        rows = pa.Table.from_batches([batch])
        found.append(_places(rows.filter(pc.equal(rows["log_id"], partition_numbers(rows, log_ids, -1)))))
    return np.concatenate(found)


def _places(rows: pa.Table) -> Numbers:
    return joined(*(rows[name].to_numpy().astype(np.int64) for name in ("offsets_partition", "record_offset")))
