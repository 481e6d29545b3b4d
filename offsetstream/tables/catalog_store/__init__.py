"""Tables of a catalog (Unity Catalog, Hive's metastore), read and written by Spark alone: no delta-rs, no path.

`store.py` imports no Spark: a command that names a catalog says in one line what it needs.
"""

from offsetstream.tables.catalog_store.store import CatalogStore

__all__ = ["CatalogStore"]
