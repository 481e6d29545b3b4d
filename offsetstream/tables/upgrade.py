"""Upgrade tables of an older version of the program, or refuse them."""

from __future__ import annotations

from offsetstream.errors import TablesError
from offsetstream.tables.schema import TableSchema, all_schemas
from offsetstream.tables.store import Snapshot, Store
from offsetstream.tables.version import PROPERTY, SCHEMA_VERSION, refuse_newer

# Properties that had other values in earlier versions: in all tables, and in state tables of versions 1 and 2.
_EARLIER = {"delta.checkpointInterval": "100"}
_EARLIER_VERSIONS = ("1", "2")
_EARLIER_STATE = {
    **_EARLIER,
    "delta.deletedFileRetentionDuration": "interval 6 hours",
    "delta.logRetentionDuration": "interval 2 days",
}


def check_upgradable(table: Snapshot, schema: TableSchema) -> None:
    """Raise TablesError unless the table has this version's schema, or can be upgraded to it."""
    refuse_newer(table)
    path, existing = table.where, table.columns
    found = table.properties.get(PROPERTY, "unknown")
    if not found.isdigit():
        raise TablesError(
            f"the table {path} has schema version {found}: offsetstream did not create it; name another folder"
        )
    missing = [column.name for column in schema.columns if column.name not in existing]
    if missing and int(found) == SCHEMA_VERSION:
        raise TablesError(
            f"the table {path} lacks the columns {', '.join(sorted(missing))}: offsetstream did not create it"
        )
    differences = [
        f"{column.name} is {existing[column.name].type}, not {column.type}"
        for column in schema.columns
        if column.name in existing and existing[column.name].type != column.type
    ]
    if table.partitioned_by != schema.partitioned_by:
        differences.append(f"it is partitioned by {', '.join(table.partitioned_by) or 'nothing'}")
    if differences:
        raise TablesError(
            f"the table {path} (schema version {found}) cannot be upgraded to version {SCHEMA_VERSION}: "
            f"{'; '.join(differences)}: name another folder with --tables; the job loads everything again there"
        )


def upgrade_tables(tables: Store) -> list[str]:
    """Upgrade tables of an older version and return their names. Only the holder of the lease may call this.

    New columns are null in existing rows. Files that some readers cannot filter are rewritten. Comments and properties
    that a user changed stay. The version is written last, so an interrupted upgrade is repeated.
    """
    upgraded = []
    for schema in all_schemas().values():
        table = tables.open(schema.name)
        if table.properties.get(PROPERTY) == str(SCHEMA_VERSION):
            continue  # any difference was made by a user
        upgrade_columns(table, schema)
        table.rewrite_old_rows()
        table.set_properties(_new_properties(table, schema))
        upgraded.append(schema.name)
    return upgraded


def upgrade_columns(table: Snapshot, schema: TableSchema) -> None:
    """Add the columns that the table lacks, and replace comments of earlier versions."""
    existing = {name: column.comment for name, column in table.columns.items()}
    if missing := [column for column in schema.columns if column.name not in existing]:
        table.add_columns(missing)
    for column in schema.columns:  # replace our own earlier comments, not a user's
        if existing.get(column.name, column.comment) in (None, *column.earlier_comments):
            table.set_comment(column.name, column.comment)


def _new_properties(table: Snapshot, schema: TableSchema) -> dict[str, str]:
    """Return the properties to set: the new version, and those that are missing or that an earlier version set."""
    configuration = table.properties
    found = configuration.get(PROPERTY, "")
    earlier = _EARLIER_STATE if schema.kind == "state" and found in _EARLIER_VERSIONS else _EARLIER
    return {
        name: value
        for name, value in schema.properties.items()
        if name == PROPERTY or configuration.get(name) in (None, earlier.get(name))
    }
