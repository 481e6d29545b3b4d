"""Create missing tables, and refuse tables of another cluster or of a newer version."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from offsetstream.coordinator.coordinator_kind import Coordinator
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
    """Create every missing table. Each stores the cluster's id and its group coordinator (new or classic).

    With `names`, only these are created, but all are checked. Raises TablesError if a table belongs to another
    cluster, is of a newer version of the program, or is of an older version that `upgrade_tables` cannot upgrade.
    """
    found = {schema: tables.opened(schema.name) for schema in all_schemas().values()}
    for schema, table in found.items():
        if table is not None:
            _check(table, schema, cluster_id)
    missing = [each for each, table in found.items() if table is None and (names is None or each.name in names)]
    properties = {CLUSTER_ID: cluster_id, COORDINATOR: coordinator}
    in_parallel([partial(tables.create, schema, properties) for schema in missing])


def require_cluster(tables: Store, cluster_id: str) -> None:
    """Raise TablesError if the tables belong to another cluster than `cluster_id`."""
    table = tables.opened(OFFSETS_PARTITIONS)
    if table is not None:
        _check_cluster(table, cluster_id)


def _check(table: Snapshot, schema: TableSchema, cluster_id: str) -> None:
    _check_cluster(table, cluster_id)
    check_upgradable(table, schema)
    table.require_writable()


def _check_cluster(table: Snapshot, cluster_id: str) -> None:
    found = table.properties.get(CLUSTER_ID, "unknown")
    if found != cluster_id:
        raise TablesError(
            f"the table {table.where} belongs to the cluster {found}, but this is the cluster {cluster_id}: each "
            "cluster needs its own folder; name another one with --tables"
        )
