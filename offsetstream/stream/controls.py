"""How a running job is asked, and how it answers."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from offsetstream.metrics.job_metrics import JobMetrics
from offsetstream.progress import Progress
from offsetstream.tables.lease import Lease


@dataclass(frozen=True)
class Signals:
    """What other threads ask of the job: to stop, or to look at the requests for reloads in the lease."""

    stop: threading.Event
    reload: threading.Event


@dataclass(frozen=True)
class Controls:
    """The lease, in which other processes leave requests; the signals of this one's threads; and lines and metrics for
    whoever watches the job.
    """

    lease: Lease
    signals: Signals
    progress: Progress
    metrics: JobMetrics

    def is_stopping(self) -> bool:
        """Tell whether the job is to stop."""
        return self.signals.stop.is_set()
