"""Tables at paths, read and written by delta-rs and Spark: nobody else imports either of the two's Delta.

`store.py` imports little, as every look-up begins there; the rest is imported with what is asked of it.
"""

from offsetstream.tables.path_store.store import PathStore

__all__ = ["PathStore"]
