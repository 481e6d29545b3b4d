"""Tables at paths, read and written by delta-rs and Spark: nobody else imports either of the two's Delta.

`store.py` imports little, as every look-up begins there; the rest is imported with what is asked of it.
"""

import os

# A write whose rows Python makes holds a thread of delta-rs until it has Python's lock, which `DeltaStorageHandler`
# (1.6) holds while it waits for such a thread. So there are more of them than writes at a time: by itself delta-rs
# starts one for each core, and on two cores both waited for ever.
os.environ.setdefault("TOKIO_WORKER_THREADS", str(max(32, os.cpu_count() or 1)))

from offsetstream.tables.path_store.store import PathStore

__all__ = ["PathStore"]
