"""Tables of an older version of the program get what they lack, or are refused."""

from __future__ import annotations

from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from offsetstream.errors import TablesError
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import ColumnSchema, TableSchema, all_schemas
from offsetstream.tables.string_views import rewrite_string_views
from offsetstream.tables.version import PROPERTY, SCHEMA_VERSION, refuse_newer

_DELTA_TYPES = {
    "INT": "integer",
    "BIGINT": "long",
    "STRING": "string",
    "BOOLEAN": "boolean",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
}

# The properties of state tables that were others in some earlier versions.
_EARLIER_VERSIONS = ("1", "2")
_EARLIER_STATE = {
    "delta.deletedFileRetentionDuration": "interval 6 hours",
    "delta.logRetentionDuration": "interval 2 days",
}


def field_of(column: ColumnSchema) -> Field:
    """Return the column as Delta has it."""
    return Field(column.name, PrimitiveType(_DELTA_TYPES[column.type]), metadata={"comment": column.comment})


def check_upgradable(table: DeltaTable, schema: TableSchema) -> None:
    """Raise TablesError unless the table is of this version of the program, or can be made so."""
    refuse_newer(table)
    path, metadata = table.table_uri, table.metadata()
    found = metadata.configuration.get(PROPERTY, "unknown")
    if not found.isdigit():
        raise TablesError(f"the table {path} has schema version {found}: it is not one of ours; name another folder")
    existing = {field.name: field for field in table.schema().fields}
    missing = [column.name for column in schema.columns if column.name not in existing]
    if missing and int(found) == SCHEMA_VERSION:
        raise TablesError(f"the table {path} lacks the columns {', '.join(sorted(missing))}: it is not one of ours")
    others = [
        f"{column.name} is {existing[column.name].type.type}, not {field_of(column).type.type}"
        for column in schema.columns
        if column.name in existing and existing[column.name].type != field_of(column).type
    ]
    if tuple(metadata.partition_columns) != schema.partitioned_by:
        others.append(f"it is partitioned by {', '.join(metadata.partition_columns) or 'nothing'}")
    if others:
        raise TablesError(
            f"the table {path} (schema version {found}) cannot be upgraded to version {SCHEMA_VERSION}: "
            f"{'; '.join(others)}: name another folder by --tables, and the job loads everything there"
        )


def upgrade_tables(tables: PathStore) -> list[str]:
    """Bring tables of an older version up to this one's, and return their names; for the holder of the lease only.

    Columns that are new are null in the rows that are there; files whose text not every reader can filter are written
    anew. What a user made of a comment or a property stays. The version is written after all that, so that an upgrade
    that was interrupted is done again.
    """
    upgraded = []
    for schema in all_schemas().values():
        table = DeltaTable(tables.table(schema.name))
        if table.metadata().configuration.get(PROPERTY) == str(SCHEMA_VERSION):
            continue  # what is otherwise is a user's
        _upgrade_columns(table, schema)
        if rewrite_string_views(tables.table(schema.name), schema):
            table.update_incremental()
        table.alter.set_table_properties(_new_properties(table, schema), raise_if_not_exists=False)
        upgraded.append(schema.name)
    return upgraded


def _upgrade_columns(table: DeltaTable, schema: TableSchema) -> None:
    existing = {field.name: field.metadata.get("comment") for field in table.schema().fields}
    if missing := [field_of(column) for column in schema.columns if column.name not in existing]:
        table.alter.add_columns(missing)
    for column in schema.columns:  # what a column says may have been made clearer, or stricter
        if existing.get(column.name, column.comment) in (None, *column.earlier_comments):
            table.alter.set_column_metadata(column.name, {"comment": column.comment})


def _new_properties(table: DeltaTable, schema: TableSchema) -> dict[str, str]:
    """Return the properties that the table lacks, or has as its own version gave them; the version is among them."""
    configuration = table.metadata().configuration
    found = configuration.get(PROPERTY, "")
    earlier = _EARLIER_STATE if schema.kind == "state" and found in _EARLIER_VERSIONS else {}
    return {
        name: value
        for name, value in schema.properties.items()
        if name == PROPERTY or configuration.get(name) in (None, earlier.get(name))
    }
