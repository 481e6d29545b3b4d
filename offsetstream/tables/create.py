"""Create missing tables, also after damage, and refuse tables of another cluster, schema or program."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from functools import partial

from offsetstream.coordinator.partitioning import Coordinator
from offsetstream.errors import DamagedTableError, TablesError
from offsetstream.tables.names import (
    CLUSTER,
    DECODED_LOGS,
    DECODED_TABLES,
    JOB_LEASE,
    LEDGER,
    OFFSETS_PARTITIONS,
    STATE_TABLES,
    TOPIC_PARTITIONS,
)
from offsetstream.tables.schema import SCHEMA_VERSION, TableSchema, all_schemas
from offsetstream.tables.store import Snapshot, Store, require_version
from offsetstream.tables.transaction import in_parallel

CLUSTER_ID = "offsetstream.cluster_id"
COORDINATOR = "offsetstream.coordinator"
# Tables that the job can fill again: from the topic, from the history, or by a new look at the cluster.
MADE_ANEW = frozenset(
    {
        *STATE_TABLES,
        OFFSETS_PARTITIONS,
        JOB_LEASE,
        LEDGER,
        *DECODED_TABLES,
        DECODED_LOGS,
        TOPIC_PARTITIONS,
        CLUSTER,
    }
)
# Without the ledger nobody can tell which rows a history lost before. So a person decides about it.
HEALED_BY_JOB = MADE_ANEW - {LEDGER}


def create_tables(
    tables: Store, cluster_id: str, coordinator: Coordinator, names: Collection[str] | None = None
) -> None:
    """Create every missing table. Each stores the cluster's id and its group coordinator (new or classic).

    With `names`, only these are created, but all are checked, except for other ones that are damaged. Raises
    TablesError if a table belongs to another cluster, has another schema, or was not created by offsetstream.
    """
    wanted = all_schemas().keys() if names is None else names
    missing = []
    for schema in all_schemas().values():
        try:
            table = tables.opened(schema.name)
        except DamagedTableError:
            if schema.name in wanted:
                raise
            continue
        if table is not None:
            _check(table, schema, cluster_id)
        elif schema.name in wanted:
            missing.append(schema)
    properties = {CLUSTER_ID: cluster_id, COORDINATOR: coordinator}
    in_parallel([partial(tables.create, schema, properties) for schema in missing])


def create_again(tables: Store, names: Collection[str]) -> None:
    """Create missing tables with the cluster and the coordinator that the other tables have."""
    for name in all_schemas():
        with suppress(DamagedTableError):
            if (table := tables.opened(name)) is not None and CLUSTER_ID in table.properties:
                coordinator: Coordinator = "classic" if table.properties.get(COORDINATOR) == "classic" else "new"
                create_tables(tables, table.properties[CLUSTER_ID], coordinator, names)
                return
    raise TablesError(f"no table in {tables.name} can be opened, so the cluster that they belong to is not known")


def require_whole_logs(store: Store) -> None:
    """Raise DamagedTableError if the last entry of a log is empty, as a crash of the machine may leave it.

    Readers take it for a commit that changes nothing. All other damage they notice.
    """
    for name in all_schemas():
        folder = store.folder(name)
        if folder is not None and (damage := folder.empty_entry()) is not None:
            raise folder.error_of(damage)


def require_cluster(tables: Store, cluster_id: str) -> None:
    """Raise TablesError if the tables belong to another cluster than `cluster_id`."""
    table = tables.opened(OFFSETS_PARTITIONS)
    if table is not None:
        _check_cluster(table, cluster_id)


def _check(table: Snapshot, schema: TableSchema, cluster_id: str) -> None:
    _check_cluster(table, cluster_id)
    require_version(table)
    stored, differences = table.columns, list[str]()
    if lacking := [column.name for column in schema.columns if column.name not in stored]:
        differences.append(f"it lacks the columns {', '.join(sorted(lacking))}")
    differences += [
        f"{column.name} is {stored[column.name]}, not {column.type}"
        for column in schema.columns
        if stored.get(column.name, column.type) != column.type
    ]
    if table.partitioned_by != schema.partitioned_by:
        differences.append(f"it is partitioned by {', '.join(table.partitioned_by) or 'nothing'}")
    if differences:
        raise TablesError(
            f"the table {table.where} differs from schema version {SCHEMA_VERSION}: {'; '.join(differences)}: name "
            "another place with --tables; the job loads everything again there"
        )
    table.require_writable()


def _check_cluster(table: Snapshot, cluster_id: str) -> None:
    found = table.properties.get(CLUSTER_ID, "unknown")
    if found != cluster_id:
        raise TablesError(
            f"the table {table.where} belongs to the cluster {found}, but this is the cluster {cluster_id}: each "
            "cluster needs its own folder; name another one with --tables"
        )
