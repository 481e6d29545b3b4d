"""What the parts of a running job share: its lease, its signals, its log and its metrics.

A thread renews the lease, and reads requests to stop and to reload from it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING

from offsetstream.errors import ConflictError, DamagedTableError, LeaseError, NoTableError, OlderCopyError, TablesError
from offsetstream.tables.lease import LIFETIME, Lease

if TYPE_CHECKING:  # a command needs only the heartbeat
    from offsetstream.metrics.job_metrics import JobMetrics
    from offsetstream.progress import Progress
    from offsetstream.stream.stall import StallWatch

BEAT_SECONDS = 10.0
PATIENCE = 0.75 * LIFETIME  # no other job may take the lease meanwhile
_LASTING = (ConflictError, DamagedTableError, NoTableError, OlderCopyError)
POLL_SECONDS = 1.0
# The errors of delta-rs, Spark and the stores if the job that took over has written to a table (rule 8).
_SHUT_OUT = ("Concurrent transaction failed", "ConcurrentTransactionException", "was written to meanwhile")


@dataclass(frozen=True)
class Signals:
    """Events that other threads set: the job is to stop, or the lease has requests to reload."""

    stop: threading.Event
    reload: threading.Event


@dataclass(frozen=True)
class Controls:
    """The lease with requests of other processes, the signals of this process's threads, the log, the metrics, and
    the watch for a job without progress.
    """

    lease: Lease
    signals: Signals
    progress: Progress
    metrics: JobMetrics
    stalls: StallWatch

    def is_stopping(self) -> bool:
        """Return whether the job is to stop."""
        return self.signals.stop.is_set()


class Heartbeat:
    """Hold a lease while the context lasts, and release it at the end.

    If the lease cannot be read or written, try again for `patience`; `on_fault` gets the first error of such a time.
    After the lease's lifetime another job may take it: that shuts all tables for writes of this job (rule 8).

    `on_stop` gets the name of who requested a stop, or the reason for which the lease was lost. A lost lease also ends
    the context with its error. `on_reload` is called at each check while the lease has a request to reload; `on_check`
    at each check, by the thread.
    """

    def __init__(
        self,
        lease: Lease,
        on_stop: Callable[[str], None],
        on_reload: Callable[[], None],
        on_check: Callable[[], None] = lambda: None,
        *,
        patience: timedelta = PATIENCE,
        on_fault: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._lease = lease
        self._on_stop = on_stop
        self._on_reload = on_reload
        self._on_check = on_check
        self._patience = patience
        self._on_fault = on_fault
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
            try:
                self._lease.release()
            except (TablesError, OSError):
                if error is None:
                    raise
        elif error is None or any(conflict in str(error) for conflict in _SHUT_OUT):
            raise self._error

    def _run(self) -> None:
        try:
            self._beat()
        except Exception as error:  # any error: without a lease the job must not continue
            self._error = error
            self._on_stop("the next job" if isinstance(error, LeaseError) else f"the lost lease ({error})")

    def _beat(self) -> None:
        check_seconds, beaten_at = max(POLL_SECONDS, self._lease.check_seconds), time.monotonic()
        failing_since: float | None = None
        self._on_check()
        while not self._ended.wait(check_seconds):
            self._on_check()
            # On a slow store every other check is a heartbeat: two in the lifetime of a lease.
            is_due = time.monotonic() - beaten_at > max(BEAT_SECONDS, 1.5 * self._lease.check_seconds)
            started = time.monotonic()
            try:
                row = self._lease.heartbeat() if is_due else self._lease.read()
            except (TablesError, OSError) as error:
                if failing_since is None:
                    failing_since = started
                    self._on_fault(f"Cannot renew the lease: {error}; trying again")
                is_over = timedelta(seconds=time.monotonic() - failing_since) > self._patience
                if isinstance(error, _LASTING) or is_over:
                    raise
                continue
            failing_since = None
            if is_due:
                beaten_at = started
            if row.stop_requested_by is not None:
                self._on_stop(row.stop_requested_by)
            if row.reload_requested is not None:
                self._on_reload()
