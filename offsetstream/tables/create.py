"""Create the tables that are missing, and refuse tables of another cluster or another version of the program."""

from __future__ import annotations

from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import TableNotFoundError
from deltalake.schema import PrimitiveType

from offsetstream.errors import TablesError
from offsetstream.tables.location import TablesLocation
from offsetstream.tables.schema import SCHEMA_VERSION, TableSchema, all_schemas

CLUSTER_ID = "offsetstream.cluster_id"
COORDINATOR = "offsetstream.coordinator"
SCHEMA_VERSION_PROPERTY = "offsetstream.schema_version"
_DELTA_TYPES = {
    "INT": "integer",
    "BIGINT": "long",
    "STRING": "string",
    "BOOLEAN": "boolean",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
}


def create_tables(tables: TablesLocation, cluster_id: str, coordinator: str) -> None:
    """Create every table that is not there yet; each keeps the cluster's id and its coordinator (new or classic).

    Raises TablesError where a table belongs to another cluster, or has another schema version. By delta-rs, which
    takes milliseconds for what takes Spark ten seconds, and before Spark has started.
    """
    found = {schema: _open(tables, schema) for schema in all_schemas().values()}
    for schema, table in found.items():
        if table is not None:
            _check(table, schema, cluster_id)
    for schema, table in found.items():
        if table is None:
            _create(tables, schema, {CLUSTER_ID: cluster_id, COORDINATOR: coordinator})


def _open(tables: TablesLocation, schema: TableSchema) -> DeltaTable | None:
    try:
        return DeltaTable(tables.table(schema.name))
    except TableNotFoundError:
        return None


def _create(tables: TablesLocation, schema: TableSchema, properties: dict[str, str]) -> None:
    fields = [
        Field(column.name, PrimitiveType(_DELTA_TYPES[column.type]), metadata={"comment": column.comment})
        for column in schema.columns
    ]
    DeltaTable.create(
        tables.table(schema.name),
        Schema(fields),
        mode="ignore",
        partition_by=list(schema.partitioned_by),
        name=schema.name,
        description=schema.comment,
        configuration=schema.properties | properties,
        raise_if_key_not_exists=False,
    )


def _check(table: DeltaTable, schema: TableSchema, cluster_id: str) -> None:
    path, properties = table.table_uri, table.metadata().configuration
    if properties.get(CLUSTER_ID) != cluster_id:
        raise TablesError(
            f"the table {path} belongs to the cluster {properties.get(CLUSTER_ID, 'unknown')}, but this is the "
            f"cluster {cluster_id}: name another folder by --tables, one for each cluster"
        )
    if properties.get(SCHEMA_VERSION_PROPERTY) != str(SCHEMA_VERSION):
        raise TablesError(
            f"the table {path} has schema version {properties.get(SCHEMA_VERSION_PROPERTY, 'unknown')}, this program "
            f"writes version {SCHEMA_VERSION}: use the version of offsetstream that made the table"
        )
    missing = set(schema.column_names) - {field.name for field in table.schema().fields}
    if missing:
        raise TablesError(f"the table {path} lacks the columns {', '.join(sorted(missing))}: it is not one of ours")
