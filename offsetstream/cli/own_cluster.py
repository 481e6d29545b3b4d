"""Connect to the live cluster of the tables. Import this only when needed: importing the Kafka client is slow."""

from __future__ import annotations

from typing import TypeVar

from offsetstream.cli.options import client_properties
from offsetstream.cluster.client import Cluster
from offsetstream.tables.create import require_cluster
from offsetstream.tables.store import Store

Asked = TypeVar("Asked", bound=Cluster)


def connect_to_tables_cluster(
    asked: type[Asked], tables: Store, bootstrap_server: str, command_config: str | None
) -> Asked:
    """Return an `asked` for the cluster at the address. Raise TablesError if the tables are of another cluster."""
    cluster = asked(bootstrap_server, client_properties(command_config))
    require_cluster(tables, cluster.cluster_id())
    return cluster
