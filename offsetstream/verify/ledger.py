"""Find rows that were lost, doubled or changed since they were written: by the job's ledger, and by their keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from offsetstream.tables.ledger import count_rows, joined_rows, read_entries, valid_entries
from offsetstream.tables.names import DERIVED_TABLES, LEDGER, RECORD_TABLES
from offsetstream.tables.schema import HISTORY_DAY, TableSchema, all_schemas
from offsetstream.tables.small_tables import rows_per_partition
from offsetstream.tables.sql import in_partitions
from offsetstream.tables.store import Snapshot, Store
from offsetstream.tables.tally import Entry, Log, by_day
from offsetstream.verify.difference import OF_LEDGER, RECORDS, ROWS, Difference, lasting

CHECKSUM = "checksum"
_NAMES = ("offsets_partition", "log_id", HISTORY_DAY, "checkpoint_id", "batch_id")
_PLACE = ("offsets_partition", "log_id", "record_offset")  # place of the record
_AT_ONCE = 5_000_000  # history records counted together; limits memory


def ledger_since(tables: Store) -> datetime | None:
    """Return when the ledger starts, None if there is none. It cannot show earlier losses."""
    ledger = tables.opened(LEDGER)
    return None if ledger is None else ledger.created_at


def ledger_differences(tables: Store, *, checksums: bool) -> list[Difference]:
    """Return where the history tables differ from the ledger, by log, day and, if known, batch.

    Without `checksums`, rows are only counted. This takes a tenth of the time.
    """
    return lasting(lambda: _differences(tables, checksums))  # a job or retention may be running


def _differences(tables: Store, checksums: bool) -> Iterator[Difference]:
    # Read the ledger first: rows appended meanwhile are above what it counted.
    ledger = tables.open(LEDGER)
    for history in RECORD_TABLES:
        said, there = counts_by_day(ledger, tables, history, checksums=checksums)
        for log, day in sorted(said.keys() | there.keys()):
            if not _is_same(said.get((log, day)), there.get((log, day)), checksums):
                yield from _of_batches(ledger, tables, history, log, day)


def counts_by_day(
    ledger: Snapshot, tables: Store, history: str, *, checksums: bool
) -> tuple[dict[tuple[Log, str], Entry], dict[tuple[Log, str], Entry]]:
    """Return what the ledger says of a history, and what is there, by log and day.

    Without `checksums`, those of the rows are 0.
    """
    said = by_day(read_entries(ledger, history, _holds(tables, history)))
    return said, by_day(count_rows(ledger, tables, history)) if checksums else _row_counts(ledger, tables, history)


def _holds(tables: Store, history: str) -> str:
    return valid_entries(tables.open(history))


def _row_counts(ledger: Snapshot, tables: Store, history: str) -> dict[tuple[Log, str], Entry]:
    place = f"r.offsets_partition AS p, r.log_id AS l, r.{HISTORY_DAY} AS day"
    query = f"SELECT p, l, day, count(*) AS n FROM ({joined_rows(history, place)}) GROUP BY p, l, day"  # noqa: S608
    rows = tables.open(history).query(query, ledger=ledger).read_all().to_pylist()
    return {
        ((r["p"], r["l"]), str(r["day"])): Entry(r["p"], r["l"], str(r["day"]), None, None, r["n"], 0, 0) for r in rows
    }


def _is_same(said: Entry | None, there: Entry | None, checksums: bool) -> bool:
    said_rows, said_sum = (said.rows, said.checksum) if said else (0, 0)  # a repair may leave entries that add up to 0
    rows, checksum = (there.rows, there.checksum) if there else (0, 0)
    return said_rows == rows and (not checksums or said_sum == checksum)


def _of_batches(ledger: Snapshot, tables: Store, history: str, log: Log, day: str) -> Iterator[Difference]:
    """Yield the differences of one log and day, by batch, or in total if the ledger has only the sum."""
    where = f"offsets_partition = {log[0]} AND log_id = {log[1]} AND {HISTORY_DAY} = DATE '{day}'"
    said = read_entries(ledger, history, f"{where} AND {_holds(tables, history)}", each_batch=True)
    there = count_rows(ledger, tables, history, " AND ".join(f"r.{each}" for each in where.split(" AND ")))
    if any(each.batch_id is None for each in said):
        said, there = ([*by_day(entries).values()] for entries in (said, there))
    ours, theirs = _by_batch(there), _by_batch(said)
    for key in sorted(ours.keys() | theirs.keys(), key=str):
        nothing = Entry(*log, day, *key, 0, 0, 0)
        own, counted = ours.get(key, nothing), theirs.get(key, nothing)
        place = (*log, day, *key)
        if own.rows != counted.rows:
            yield Difference(history, _NAMES, place, ROWS, own.rows, counted.rows, OF_LEDGER)
        elif own.checksum != counted.checksum:
            yield Difference(history, _NAMES, place, CHECKSUM, own.checksum, counted.checksum, OF_LEDGER)


def _by_batch(entries: Iterable[Entry]) -> dict[tuple[int | None, int | None], Entry]:
    return {(each.checkpoint_id, each.batch_id): each for each in entries}


def doubled_rows(tables: Store) -> list[Difference]:
    """Return the keys with several rows, and the partitions whose history has a record more than once.

    For a partition's history, the difference names the first such record and counts rows and records. Derived
    tables are skipped: their keys are counted when they are derived again.
    """
    schemas = [schema for schema in all_schemas().values() if schema.name not in DERIVED_TABLES]
    found: list[Difference] = []
    for schema in schemas:
        is_in_log = not schema.key and "record_offset" in schema.column_names
        found += _of_records(tables, schema) if is_in_log else _of_keys(tables, schema)
    return found


def _of_keys(tables: Store, schema: TableSchema) -> Iterator[Difference]:
    names = ", ".join(schema.row_key)
    # A repair's entries in the ledger have no batch. They may end at the same offset as the job's.
    rows = "rows WHERE batch_id IS NOT NULL" if schema.name == LEDGER else "rows"
    query = f"SELECT {names}, count(*) AS n FROM {rows} GROUP BY {names} HAVING count(*) > 1 ORDER BY {names}"  # noqa: S608 - our own SQL
    for row in _query(tables, schema.name, query):
        key = tuple(row[name] for name in schema.row_key)
        yield Difference(schema.name, schema.row_key, key, ROWS, row["n"], 1, RECORDS)


def _of_records(tables: Store, schema: TableSchema) -> Iterator[Difference]:
    for partitions in some_at_a_time(rows_per_partition(tables, schema.name)):
        identity = ", ".join(schema.row_key)
        counted = (
            f"SELECT {identity}, count(*) AS n FROM rows WHERE {in_partitions(partitions)} "  # noqa: S608 - our own SQL
            f"GROUP BY {identity} HAVING count(*) > 1"
        )
        query = (
            "SELECT offsets_partition, log_id, min(record_offset) AS record_offset, sum(n) AS rows, "  # noqa: S608
            f"count(*) AS records FROM ({counted}) GROUP BY offsets_partition, log_id"
        )
        for row in _query(tables, schema.name, f"{query} ORDER BY offsets_partition, log_id"):
            key = tuple(row[name] for name in _PLACE)
            yield Difference(schema.name, _PLACE, key, ROWS, row["rows"], row["records"], RECORDS)


def some_at_a_time(rows: Mapping[int, int]) -> Iterator[list[int]]:
    """Yield lists of offsets partitions; each list has a limited total of `rows`."""
    some, count = list[int](), 0
    for partition, own in sorted(rows.items()):
        if some and count + own > _AT_ONCE:
            yield some
            some, count = [], 0
        some.append(partition)
        count += own
    if some:
        yield some


def _query(tables: Store, name: str, query: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = tables.open(name).query(query).read_all().to_pylist()
    return found
