"""How the driver writes over rows: those that fulfil a condition give way to others, in one commit.

Of delta-rs's writes (1.6) only an overwrite with a condition does for readers and writers alike. It sees that somebody
else's commit took away the files that it read: with a plain overwrite, or a transaction of files, an OPTIMIZE between
them doubles every row. And its files have text as every reader knows it: MERGE, UPDATE and DELETE leave ``string_view``
in the files' Arrow schema, which a pyarrow dataset cannot filter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from offsetstream.tables.features import explained
from offsetstream.tables.matching import keys_of

EVERY_ROW = "true"
_SMALL_BYTES = 8 << 20  # of files, which are some times smaller than their rows


def arrow_schema(table: DeltaTable) -> pa.Schema:
    """Return the table's columns as Arrow has them: ours, and those that a user added."""
    return pa.schema(table.schema())


def sql_name(column: str) -> str:
    """Return the name of a column, whatever a user named it, as DataFusion's SQL has it."""
    return '"' + column.replace('"', '""') + '"'


def stored_rows(table: DeltaTable, where: str, columns: Iterable[str] = ()) -> Iterator[pa.Table]:
    """Return the rows that fulfil the condition (DataFusion's SQL), a part at a time; all columns or those named."""
    schema = arrow_schema(table)
    chosen = list(columns) or schema.names
    query = f"SELECT {', '.join(map(sql_name, chosen))} FROM rows WHERE {where}"  # noqa: S608 - the program's own SQL
    # Begun here, since a write that takes the rows cannot begin a query from its own threads.
    found = pa.RecordBatchReader.from_stream(QueryBuilder().register("rows", table).execute(query))
    wanted = pa.schema([schema.field(name) for name in chosen])
    return (pa.Table.from_batches([batch]).cast(wanted) for batch in found)


def held_if_small(table: DeltaTable, where: str) -> Callable[[], Iterable[pa.Table]]:
    """Return what gives these rows as often as it is called: of a small table out of memory, else read again."""
    if sum(pa.table(table.get_add_actions())["size_bytes"].to_pylist()) > _SMALL_BYTES:
        return lambda: stored_rows(table, where)
    parts = list(stored_rows(table, where))
    whole = [pa.concat_tables(parts)] if parts else parts
    return lambda: whole


def replace_rows(
    table: DeltaTable, where: str, rows: Iterable[pa.Table], commit: CommitProperties | None = None
) -> None:
    """Make ``rows``, which fulfil the condition, the table's only ones that do; a column that they lack is null.

    Raises CommitFailedError if somebody else wrote since ``table`` was opened.
    """
    _write(table, rows, mode="overwrite", predicate=where, commit_properties=commit)


def add_rows(table: DeltaTable, rows: Iterable[pa.Table], commit: CommitProperties | None = None) -> None:
    """Append rows; a column that they lack is null."""
    _write(table, rows, mode="append", commit_properties=commit)


def shut_out(table: DeltaTable, apps: Iterable[str], version: int) -> None:
    """Commit an empty write with a transaction of each application, which fails theirs from what they opened before.

    Raises CommitFailedError if one of them committed since ``table`` was opened.
    """
    commit = CommitProperties(app_transactions=[Transaction(app, version) for app in apps])
    partitioned_by = list(table.metadata().partition_columns)
    table.create_write_transaction([], "append", arrow_schema(table), partitioned_by, commit_properties=commit)


def _write(table: DeltaTable, rows: Iterable[pa.Table], **how: Any) -> None:
    """Write the rows; TablesError where they violate a user's CHECK, or a feature was switched on."""
    schema = arrow_schema(table)
    batches = (batch for part in rows for batch in completed(part, schema).to_batches())
    try:
        write_deltalake(table, pa.RecordBatchReader.from_batches(schema, batches), **how)
    except DeltaError as error:
        if isinstance(error, CommitFailedError) and _is_made(table, how.get("commit_properties")):
            return
        if (explanation := explained(error, table)) is None:
            raise
        raise explanation from error


def _is_made(table: DeltaTable, commit: CommitProperties | None) -> bool:
    """Tell whether the commit was made after all, and only the store's answer was lost: it then met itself.

    Its transactions name the checkpoint, so that nobody else makes the same.
    """
    mine = (commit.app_transactions if commit is not None else None) or []
    now = DeltaTable(table.table_uri)
    return bool(mine) and all(now.transaction_version(each.app_id) == each.version for each in mine)


def completed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with exactly the columns of the schema; null in those that they lack."""
    columns: list[Any] = [
        rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def with_users_columns(table: DeltaTable, where: str, rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return rows that are to replace stored ones with what a user's columns have for their keys now."""
    users = [name for name in arrow_schema(table).names if name not in rows.column_names]
    if not users:
        return rows
    keys, found, at = keys_of(rows, key), [], []
    for part in stored_rows(table, where, [*key, *users]):
        found.append(part.select(users))
        at.append(pc.index_in(keys_of(part, key), value_set=keys))
    if not found:
        return rows
    row_of_key = pc.index_in(pa.array(range(rows.num_rows), pa.int32()), value_set=pa.chunked_array(at))
    values = pa.concat_tables(found).take(row_of_key)
    for name in users:
        rows = rows.append_column(values.schema.field(name), values[name])
    return rows
