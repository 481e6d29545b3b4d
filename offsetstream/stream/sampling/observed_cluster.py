"""The single row of the table `cluster`: settings of the brokers and of the job that views need."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from offsetstream.cluster.log_ends import LogEnds
from offsetstream.coordinator.partitioning import Coordinator
from offsetstream.errors import UnauthorisedError
from offsetstream.tables.names import CLUSTER
from offsetstream.tables.small_tables import overwrite_rows
from offsetstream.tables.store import Store
from offsetstream.tables.transaction import BatchId


class ObservedCluster:
    """Write the row when it has changed. `looks_every`: time between two samples; None if the job runs once."""

    def __init__(
        self,
        tables: Store,
        cluster: LogEnds,
        coordinator: Coordinator,
        warn: Callable[[str], None],
        looks_every: timedelta | None,
    ) -> None:
        self._tables = tables
        self._cluster = cluster
        self._coordinator = coordinator
        self._warn = warn
        self._sample_interval_ms = looks_every and looks_every // timedelta(milliseconds=1)
        self._written: dict[str, Any] | None = None
        self._is_refused = False

    def write(self, batch: BatchId) -> None:
        """Query the settings, and write the row if it has changed. A setting that the user may not see is null."""
        retention, interval = self._retention()
        row = {
            "cluster_id": self._cluster.cluster_id(),
            "group_coordinator": self._coordinator,
            "offsets_retention_ms": retention,
            "offsets_retention_check_interval_ms": interval,
            "sample_interval_ms": self._sample_interval_ms,
            "ended_at": None,
        }
        if row != self._written:
            overwrite_rows(self._tables, CLUSTER, [row | {"observed_at": datetime.now(UTC)}], batch)
            self._written = row

    def _retention(self) -> tuple[int | None, int | None]:
        try:
            return self._cluster.offsets_retention()
        except UnauthorisedError as error:
            if not self._is_refused:
                self._warn(f"Cannot read offsets.retention.minutes of the brokers: {error}")
            self._is_refused = True
            return None, None
