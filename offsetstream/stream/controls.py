"""What the parts of a running job share: its lease, its signals, its log and its metrics."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from offsetstream.metrics.job_metrics import JobMetrics
from offsetstream.progress import Progress
from offsetstream.stream.stall import StallWatch
from offsetstream.tables.lease import Lease


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
