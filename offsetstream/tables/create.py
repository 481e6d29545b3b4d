"""Create the tables that are missing, and refuse tables of another cluster or a newer version."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from offsetstream.coordinator.kinds import Coordinator
from offsetstream.errors import TablesError
from offsetstream.tables.names import OFFSETS_PARTITIONS
from offsetstream.tables.parallel import in_parallel
from offsetstream.tables.schema import TableSchema, all_schemas
from offsetstream.tables.store import Snapshot, Store
from offsetstream.tables.upgrade import check_upgradable

CLUSTER_ID = "offsetstream.cluster_id"
COORDINATOR = "offsetstream.coordinator"


def create_tables(
    tables: Store, cluster_id: str, coordinator: Coordinator, names: Collection[str] | None = None
) -> None:
    """Create every table that is not there yet; each keeps the cluster's id and its coordinator (new or classic).

    With `names` only these are created, but all are checked. Raises TablesError where a table belongs to another
    cluster, is of a newer version of the program, or of an older one that cannot be upgraded
    (`upgrade_tables`).
    """
    found = {schema: tables.opened(schema.name) for schema in all_schemas().values()}
    for schema, table in found.items():
        if table is not None:
            _check(table, schema, cluster_id)
    missing = [each for each, table in found.items() if table is None and (names is None or each.name in names)]
    whose = {CLUSTER_ID: cluster_id, COORDINATOR: coordinator}
    in_parallel([partial(tables.create, schema, whose) for schema in missing])


def require_tables_of(tables: Store, cluster_id: str) -> None:
    """Raise TablesError if the tables belong to another cluster: it has nothing to do with their groups."""
    table = tables.opened(OFFSETS_PARTITIONS)
    if table is not None:
        _check_cluster(table, cluster_id)


def _check(table: Snapshot, schema: TableSchema, cluster_id: str) -> None:
    _check_cluster(table, cluster_id)
    check_upgradable(table, schema)
    table.require_writable()


def _check_cluster(table: Snapshot, cluster_id: str) -> None:
    whose = table.properties.get(CLUSTER_ID, "unknown")
    if whose != cluster_id:
        raise TablesError(
            f"the table {table.where} belongs to the cluster {whose}, but this is the cluster {cluster_id}: name "
            "another folder by --tables, one for each cluster"
        )
