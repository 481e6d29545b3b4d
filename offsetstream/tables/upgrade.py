"""Tables of an older version of the program get what they lack, or are refused."""

from __future__ import annotations

from offsetstream.errors import TablesError
from offsetstream.tables.schema import TableSchema, all_schemas
from offsetstream.tables.store import Snapshot, Store
from offsetstream.tables.version import PROPERTY, SCHEMA_VERSION, refuse_newer

# The properties that were others in earlier versions: of all tables, and of state tables in some.
_EARLIER = {"delta.checkpointInterval": "100"}
_EARLIER_VERSIONS = ("1", "2")
_EARLIER_STATE = {
    **_EARLIER,
    "delta.deletedFileRetentionDuration": "interval 6 hours",
    "delta.logRetentionDuration": "interval 2 days",
}


def check_upgradable(table: Snapshot, schema: TableSchema) -> None:
    """Raise TablesError unless the table is of this version of the program, or can be made so."""
    refuse_newer(table)
    path, existing = table.where, table.columns
    found = table.properties.get(PROPERTY, "unknown")
    if not found.isdigit():
        raise TablesError(f"the table {path} has schema version {found}: it is not one of ours; name another folder")
    missing = [column.name for column in schema.columns if column.name not in existing]
    if missing and int(found) == SCHEMA_VERSION:
        raise TablesError(f"the table {path} lacks the columns {', '.join(sorted(missing))}: it is not one of ours")
    others = [
        f"{column.name} is {existing[column.name].type}, not {column.type}"
        for column in schema.columns
        if column.name in existing and existing[column.name].type != column.type
    ]
    if table.partitioned_by != schema.partitioned_by:
        others.append(f"it is partitioned by {', '.join(table.partitioned_by) or 'nothing'}")
    if others:
        raise TablesError(
            f"the table {path} (schema version {found}) cannot be upgraded to version {SCHEMA_VERSION}: "
            f"{'; '.join(others)}: name another folder by --tables, and the job loads everything there"
        )


def upgrade_tables(tables: Store) -> list[str]:
    """Bring tables of an older version up to this one's, and return their names; for the holder of the lease only.

    Columns that are new are null in the rows that are there; what not every reader understands is written anew. What a
    user made of a comment or a property stays. The version is written after all that, so that an upgrade that was
    interrupted is done again.
    """
    upgraded = []
    for schema in all_schemas().values():
        table = tables.open(schema.name)
        if table.properties.get(PROPERTY) == str(SCHEMA_VERSION):
            continue  # what is otherwise is a user's
        _upgrade_columns(table, schema)
        table.rewrite_old_rows()
        table.set_properties(_new_properties(table, schema))
        upgraded.append(schema.name)
    return upgraded


def _upgrade_columns(table: Snapshot, schema: TableSchema) -> None:
    existing = {name: column.comment for name, column in table.columns.items()}
    if missing := [column for column in schema.columns if column.name not in existing]:
        table.add_columns(missing)
    for column in schema.columns:  # what a column says may have been made clearer, or stricter
        if existing.get(column.name, column.comment) in (None, *column.earlier_comments):
            table.set_comment(column.name, column.comment)


def _new_properties(table: Snapshot, schema: TableSchema) -> dict[str, str]:
    """Return the properties that the table lacks, or has as its own version gave them; the version is among them."""
    configuration = table.properties
    found = configuration.get(PROPERTY, "")
    earlier = _EARLIER_STATE if schema.kind == "state" and found in _EARLIER_VERSIONS else _EARLIER
    return {
        name: value
        for name, value in schema.properties.items()
        if name == PROPERTY or configuration.get(name) in (None, earlier.get(name))
    }
