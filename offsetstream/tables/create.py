"""Create the tables that are missing, and refuse tables of another cluster or a newer version."""

from __future__ import annotations

from deltalake import DeltaTable, Schema
from deltalake.exceptions import TableNotFoundError

from offsetstream.errors import TablesError
from offsetstream.tables.location import TablesLocation
from offsetstream.tables.schema import TableSchema, all_schemas
from offsetstream.tables.upgrade import check_upgradable, field_of

CLUSTER_ID = "offsetstream.cluster_id"
COORDINATOR = "offsetstream.coordinator"


def create_tables(tables: TablesLocation, cluster_id: str, coordinator: str) -> None:
    """Create every table that is not there yet; each keeps the cluster's id and its coordinator (new or classic).

    Raises TablesError where a table belongs to another cluster, is of a newer version of the program, or of an older
    one that cannot be upgraded (:func:`~offsetstream.tables.upgrade.upgrade_tables`). By delta-rs, which
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
    DeltaTable.create(
        tables.table(schema.name),
        Schema([field_of(column) for column in schema.columns]),
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
    check_upgradable(table, schema)
