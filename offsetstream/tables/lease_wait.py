"""Wait until it is known whether the job that holds the lease is alive."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from offsetstream.tables.lease import Lease, UnsureLeaseError, lease_reader
from offsetstream.tables.lease_holder import LIFETIME, HeartbeatWatch, HolderState, LeaseRow
from offsetstream.tables.store import Store

POLL_SECONDS = 1.0


def take_lease(
    tables: Store, say: Callable[[str], None], stop: threading.Event, *, force: bool = False
) -> Lease | None:
    """Take the lease, and first watch a holder that may be alive; None if `stop` is set meanwhile.

    Raises LeaseError if the holder is alive (its heartbeat changes). Calls `say` with a message if it has to watch.
    """
    watch, is_reported = HeartbeatWatch(), False
    while not stop.is_set():
        try:
            return Lease.acquire(tables, watch, force=force)
        except UnsureLeaseError as unsure:
            if not is_reported:
                say(_watching(unsure.row, "this job takes over", ". Use --force to take over at once"))
            is_reported = True
            stop.wait(POLL_SECONDS)
    return None


def is_job_alive(tables: Store, say: Callable[[str], None], watch: HeartbeatWatch | None = None) -> bool:
    """Return whether a job holds the lease and is alive.

    For a job on another host this takes ten seconds (24 in an object store), and a minute if it has died; `say` gets a
    message about that. Pass the same `watch` again to reuse what it has seen. TablesError if there are no tables.
    """
    watch, is_reported, read = watch or HeartbeatWatch(), False, lease_reader(tables)
    while True:
        row, life = watch.look(read)
        if row is None or life is not HolderState.UNSURE:
            return life is HolderState.ALIVE
        if not is_reported:
            say(_watching(row, "it counts as dead", ""))
        is_reported = True
        time.sleep(POLL_SECONDS)


def _watching(row: LeaseRow, outcome: str, hint: str) -> str:
    return (
        f"Checking whether {row.holder} is alive (last heartbeat: {row.last_heartbeat}): if there is no new heartbeat "
        f"for {LIFETIME.seconds} s, {outcome}{hint}"
    )
