"""The thread that keeps the lease alive beside the batches, and hears requests to stop and to reload."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

from offsetstream.errors import LeaseError
from offsetstream.tables.lease import Lease

BEAT_SECONDS = 10.0
POLL_SECONDS = 1.0
# How delta-rs, Spark and the stores say that the job that took over has written to a table (rule 8).
_SHUT_OUT = ("Concurrent transaction failed", "ConcurrentTransactionException", "was written to meanwhile")


class Heartbeat:
    """Holds a lease while its context lasts, and gives it back at the end.

    `asked_to_stop` is called with the name of whoever asks, or with what took the lease away; in the latter case
    the context ends with that error. `asked_to_reload` is called as long as the lease has a request for a reload.
    """

    def __init__(self, lease: Lease, asked_to_stop: Callable[[str], None], asked_to_reload: Callable[[], None]) -> None:
        self._lease = lease
        self._asked_to_stop = asked_to_stop
        self._asked_to_reload = asked_to_reload
        self._ended = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def __enter__(self) -> Lease:
        self._thread.start()
        return self._lease

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        if self._error is None:
            self._lease.release()
        elif error is None or any(conflict in str(error) for conflict in _SHUT_OUT):
            raise self._error

    def _run(self) -> None:
        try:
            self._beat()
        except Exception as error:  # of whatever kind: without a lease the job must not go on
            self._error = error
            self._asked_to_stop("the next job" if isinstance(error, LeaseError) else f"the lost lease ({error})")

    def _beat(self) -> None:
        look_seconds, beaten = max(POLL_SECONDS, self._lease.look_seconds), time.monotonic()
        while not self._ended.wait(look_seconds):
            # Of a store that is looked at rarely each other look is a heartbeat: two in the lifetime of a lease.
            is_due = time.monotonic() - beaten > max(BEAT_SECONDS, 1.5 * self._lease.look_seconds)
            if is_due:
                beaten = time.monotonic()
            row = self._lease.heartbeat() if is_due else self._lease.read()
            if row.stop_requested_by is not None:
                self._asked_to_stop(row.stop_requested_by)
            if row.reload_requested is not None:
                self._asked_to_reload()
