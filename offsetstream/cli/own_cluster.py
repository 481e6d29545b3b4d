"""The live cluster beside the tables: imported only by who asks it, since the Kafka client takes time to import."""

from __future__ import annotations

from offsetstream.cli.options import client_properties
from offsetstream.cluster.coordinators import CoordinatorLookup
from offsetstream.tables.create import require_tables_of
from offsetstream.tables.store import Store


def own_cluster(tables: Store, bootstrap_server: str, command_config: str | None) -> CoordinatorLookup:
    """Return the cluster at the address; TablesError if the tables are of another one."""
    cluster = CoordinatorLookup(bootstrap_server, client_properties(command_config))
    require_tables_of(tables, cluster.cluster_id())
    return cluster
