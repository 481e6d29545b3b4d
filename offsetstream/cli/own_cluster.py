"""The live cluster beside the tables: imported only by who asks it, since the Kafka client takes time to import."""

from __future__ import annotations

from typing import TypeVar

from offsetstream.cli.options import client_properties
from offsetstream.cluster.topics import Topics
from offsetstream.tables.create import require_tables_of
from offsetstream.tables.store import Store

Asked = TypeVar("Asked", bound=Topics)


def own_cluster(asked: type[Asked], tables: Store, bootstrap_server: str, command_config: str | None) -> Asked:
    """Return the cluster at the address, to be asked what `asked` asks; TablesError if the tables are of another."""
    cluster = asked(bootstrap_server, client_properties(command_config))
    require_tables_of(tables, cluster.cluster_id())
    return cluster
