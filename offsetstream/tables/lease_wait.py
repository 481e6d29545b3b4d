"""Waiting until it is known whether the job that holds the lease lives."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from offsetstream.tables.lease import Lease, UnsureLeaseError, lease_reader
from offsetstream.tables.lease_holder import LIFETIME, HeartbeatWatch, LeaseRow, Life
from offsetstream.tables.store import Store

POLL_SECONDS = 1.0


def take_lease(
    tables: Store, say: Callable[[str], None], stop: threading.Event, *, force: bool = False
) -> Lease | None:
    """Take the lease, and watch a holder of whom nothing is known meanwhile; None if `stop` is set first.

    LeaseError if the holder lives: its heartbeat changes. That it is watched is told to `say`.
    """
    watch, is_told = HeartbeatWatch(), False
    while not stop.is_set():
        try:
            return Lease.acquire(tables, watch, force=force)
        except UnsureLeaseError as unsure:
            if not is_told:
                say(_watching(unsure.row, "taken over", "; at once with --force"))
            is_told = True
            stop.wait(POLL_SECONDS)
    return None


def is_job_alive(tables: Store, say: Callable[[str], None], watch: HeartbeatWatch | None = None) -> bool:
    """Tell whether a job holds the lease and lives; False if there is none.

    That takes ten seconds for a job of another host (24 on an object store), and a minute for one that died there,
    which `say` is told. Who
    asks again gives the same `watch`: what it has seen counts. TablesError if there are no tables.
    """
    watch, is_told, read = watch or HeartbeatWatch(), False, lease_reader(tables)
    while True:
        row, life = watch.look(read)
        if row is None or life is not Life.UNSURE:
            return life is Life.ALIVE
        if not is_told:
            say(_watching(row, "taken for dead", ""))
        is_told = True
        time.sleep(POLL_SECONDS)


def _watching(row: LeaseRow, what: str, otherwise: str) -> str:
    return (
        f"Watching whether {row.holder} still writes (last sign of life {row.sign_of_life}): {what} if there is no "
        f"other for {LIFETIME.seconds} s{otherwise}"
    )
