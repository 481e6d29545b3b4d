"""Create the tables that are missing, and refuse tables of another cluster or a newer version."""

from __future__ import annotations

from collections.abc import Collection

from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from offsetstream.errors import TablesError, first_line
from offsetstream.tables.features import refuse_features
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import TableSchema, all_schemas, load_schema
from offsetstream.tables.upgrade import check_upgradable, field_of

CLUSTER_ID = "offsetstream.cluster_id"
COORDINATOR = "offsetstream.coordinator"


def create_tables(tables: PathStore, cluster_id: str, coordinator: str, names: Collection[str] | None = None) -> None:
    """Create every table that is not there yet; each keeps the cluster's id and its coordinator (new or classic).

    With ``names`` only these are created, but all are checked. Raises TablesError where a table belongs to another
    cluster, is of a newer version of the program, or of an older one that cannot be upgraded
    (:func:`~offsetstream.tables.upgrade.upgrade_tables`). By delta-rs, which takes milliseconds for what takes Spark
    ten seconds, and before Spark has started.
    """
    found = {schema: _open(tables, schema) for schema in all_schemas().values()}
    for schema, table in found.items():
        if table is not None:
            _check(table, schema, cluster_id)
    for schema, table in found.items():
        if table is None and (names is None or schema.name in names):
            _create(tables, schema, {CLUSTER_ID: cluster_id, COORDINATOR: coordinator})


def require_tables_of(tables: PathStore, cluster_id: str) -> None:
    """Raise TablesError if the tables belong to another cluster: it has nothing to do with their groups."""
    schema = load_schema("offsets_partitions")
    table = _open(tables, schema)
    if table is not None:
        _check_cluster(table, cluster_id)


def _open(tables: PathStore, schema: TableSchema) -> DeltaTable | None:
    try:
        return DeltaTable(tables.table(schema.name))
    except TableNotFoundError:
        return None


def _create(tables: PathStore, schema: TableSchema, properties: dict[str, str]) -> None:
    try:
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
    except (DeltaError, OSError) as error:
        raise TablesError(
            f"cannot make the table {tables.table(schema.name)}: {first_line(error)}: name another folder by --tables"
        ) from error


def _check(table: DeltaTable, schema: TableSchema, cluster_id: str) -> None:
    _check_cluster(table, cluster_id)
    check_upgradable(table, schema)
    refuse_features(table)


def _check_cluster(table: DeltaTable, cluster_id: str) -> None:
    whose = table.metadata().configuration.get(CLUSTER_ID, "unknown")
    if whose != cluster_id:
        raise TablesError(
            f"the table {table.table_uri} belongs to the cluster {whose}, but this is the cluster {cluster_id}: name "
            "another folder by --tables, one for each cluster"
        )
