"""Tables in a folder or object store, read and written with delta-rs and Spark. Only this package imports delta-rs.

`store.py` imports little, because every look-up starts there. It imports the rest when needed.
"""

import os

# A write that takes rows from Python blocks a delta-rs thread until it gets Python's lock. `DeltaStorageHandler` (1.6)
# holds this lock while it waits for a delta-rs thread. With one thread per core (delta-rs's default) and two cores,
# this was a deadlock. So there must be more threads than concurrent writes.
os.environ.setdefault("TOKIO_WORKER_THREADS", str(max(32, os.cpu_count() or 1)))

from offsetstream.tables.path_store.store import PathStore

__all__ = ["PathStore"]
