"""Tables and views over many clusters: each name has the rows of all clusters, with a first column `cluster`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import duckdb

from offsetstream.errors import TablesError
from offsetstream.tables.lookup import open_connection
from offsetstream.tables.store import Store
from offsetstream.views.reader import ViewReader

Define = Callable[[str, ViewReader], list[str]]


def over_clusters(
    stores: Mapping[str, Store], define: Define, unreadable: Callable[[str, TablesError], None]
) -> tuple[duckdb.DuckDBPyConnection, list[str]]:
    """Return a DuckDB connection in which each name has the rows of all clusters, and the files that it reads.

    `define` defines the needed names in a cluster's reader and returns them; each cluster has a DuckDB schema. A
    cluster whose tables cannot be read is passed to `unreadable` and has no rows.
    """
    connection = open_connection()
    files: list[str] = []
    clusters_of: dict[str, list[str]] = {}
    for cluster, store in stores.items():
        connection.execute(f"CREATE SCHEMA {_schema(cluster)}")
        connection.execute(f"USE {_schema(cluster)}")
        reader = ViewReader(store, connection=connection)
        try:
            names = define(cluster, reader)
        except TablesError as error:
            unreadable(cluster, error)
            continue
        files += reader.files
        for name in names:
            clusters_of.setdefault(name, []).append(cluster)
    connection.execute("USE main")
    for name, clusters in clusters_of.items():
        connection.execute(f'CREATE VIEW "{name}" AS ' + " UNION ALL ".join(_rows(each, name) for each in clusters))
    return connection, files


def _rows(cluster: str, name: str) -> str:
    return f"SELECT '{cluster}' AS cluster, * FROM {_schema(cluster)}.\"{name}\""  # noqa: S608 - names are checked


def _schema(cluster: str) -> str:
    return f'"cluster {cluster}"'  # a cluster may be named main
