"""Tables of a catalog (Unity Catalog, Hive metastore). Only Spark reads and writes them: no delta-rs, no paths.

`store.py` does not import Spark, so a command without it can report in one line what a catalog needs.
"""

from offsetstream.tables.catalog_store.store import CatalogStore

__all__ = ["CatalogStore"]
