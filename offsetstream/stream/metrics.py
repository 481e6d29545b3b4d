"""The metrics of one run of the job: its own, those of groups, and the HTTP server for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from offsetstream.metrics.group_metrics import GroupMetrics, Shown
from offsetstream.metrics.job_metrics import JobMetrics
from offsetstream.metrics.server import serving
from offsetstream.progress import Progress
from offsetstream.stream.settings import JobSettings
from offsetstream.tables.store import COSTLY_CHECK_SECONDS, Store

_SECONDS = 15.0  # between two queries of the tables


class Metrics:
    """Keep the metrics, and serve them if the settings have a port. UsageError if a regular expression is invalid.

    `stalled` returns what makes no progress, for /healthz.
    """

    def __init__(self, settings: JobSettings, progress: Progress, stalled: Callable[[], str | None]) -> None:
        self.job = JobMetrics()
        self._settings, self._progress, self._stalled = settings, progress, stalled
        self._shown = Shown(
            settings.group_metrics, settings.metrics_groups, settings.metrics_topics, settings.metrics_max_series
        )
        self._shown.require_patterns()

    @contextmanager
    def served(self) -> Iterator[None]:
        """Serve the metrics while the context lasts. Raise UsageError if the address or port cannot be used."""
        port, address = self._settings.metrics_port, self._settings.metrics_address
        if not port:
            yield
            return
        hosts = self._settings.metrics_allowed_host
        with serving(address, port, self.job.registry, self.job.standing, hosts, self._stalled) as url:
            self._progress.say(f"Serving metrics at {url}/metrics")
            yield

    @contextmanager
    def of_groups(self, tables: Store) -> Iterator[None]:
        """Read the metrics of coordinators and groups from the tables, every some seconds, while the context lasts."""
        if not self._settings.metrics_port:
            yield
            return
        groups = GroupMetrics(self._shown, COSTLY_CHECK_SECONDS if tables.is_costly else _SECONDS, self._progress.warn)
        self.job.registry.register(groups)
        groups.start(tables)
        try:
            yield
        finally:
            groups.end()
            self.job.registry.unregister(groups)
