"""Find duplicate rows: several rows of a key in a state table, or of a record in a history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from offsetstream.errors import NoTableError
from offsetstream.tables.names import DERIVED_TABLES, LEDGER
from offsetstream.tables.schema import TableSchema, all_schemas
from offsetstream.tables.small_tables import rows_per_partition
from offsetstream.tables.sql import in_partitions
from offsetstream.tables.store import Store
from offsetstream.verify.difference import RECORDS, ROWS, Difference

_PLACE = ("offsets_partition", "log_id", "record_offset")  # place of the record
_AT_ONCE = 5_000_000  # history records counted together; limits memory


def doubled_rows(tables: Store) -> list[Difference]:
    """Return the keys with several rows, and the partitions whose history has a record more than once.

    For a partition's history, the difference names the first such record and counts rows and records. Derived
    tables are skipped: their keys are counted when they are derived again.
    """
    schemas = [schema for schema in all_schemas().values() if schema.name not in DERIVED_TABLES]
    found: list[Difference] = []
    for schema in schemas:
        with suppress(NoTableError):  # tables of an older version lack one
            found += _of_table(tables, schema)
    return found


def _of_table(tables: Store, schema: TableSchema) -> Iterator[Difference]:
    in_log = not schema.key and "record_offset" in schema.column_names
    return _of_records(tables, schema) if in_log else _of_keys(tables, schema)


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
