"""Write the state tables with one of two engines: the choice, and their common interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame

from offsetstream.coordinator.coordinator_kind import Coordinator
from offsetstream.stream.state.driver_state import DriverStateWriter
from offsetstream.stream.state.homes import find_homes
from offsetstream.stream.state.size import Records, collect, collect_small
from offsetstream.stream.state.spark_state import SparkStateWriter
from offsetstream.tables.engines import Size, StateWrites, driver_reduces
from offsetstream.tables.names import STATE_TABLES
from offsetstream.tables.transaction import BatchId
from offsetstream.tables.write import TableWriter

Records_contra = TypeVar("Records_contra", contravariant=True)


class StateWriter(Protocol[Records_contra]):
    """An engine. Its steps:

    1. Reduce the records to the last one of each cell, and merge these into the `CELL_TABLES`.
    2. Find out which groups exist.
    3. Derive the groups' rows, and replace their rows in the derived tables.
    """

    def apply(
        self, decoded: Records_contra, batch: BatchId, *, loaded: Sequence[int] = (), has_cells: bool = True
    ) -> None:
        """Apply decoded records with the columns `value_offset` and `tombstone_offset`.

        `loaded`: partitions of which `decoded` has everything. Other rows of these are deleted, and all their groups
        are derived again. Otherwise, only the groups of the records are derived. `has_cells`: whether there are records
        other than offset commits.
        """


class StateTables:
    """Apply records with the engine for their size.

    `coordinator`: new or classic (reference 5.9). `topic_names`: names by topic id; the mapping may grow.
    `records_place`: whether the latest records decide the home partition of a group. `merged_by`: the engine of the
    last merge into each table; clear it before the merges of interest.
    """

    def __init__(
        self,
        writer: TableWriter,
        coordinator: Coordinator,
        log_ids: Mapping[int, int],
        topic_names: Mapping[str, str],
        records_place: Callable[[], bool] = lambda: False,
    ) -> None:
        self._writer = writer
        self._records_place = records_place
        self.merged_by = writer.merged_by
        self._driver: StateWriter[pa.Table] = DriverStateWriter(writer.tables, coordinator, log_ids, topic_names)
        self._spark: StateWriter[DataFrame] = SparkStateWriter(writer, coordinator, log_ids, topic_names)

    @property
    def may_use_driver(self) -> bool:
        """Whether the driver may process records itself."""
        return self._writer.state_writes is not StateWrites.SPARK

    def collect_small(self, decoded: DataFrame, at_most: int) -> pa.Table | None:
        """Collect up to `at_most` decoded records on the driver in one job; None if tasks must reduce them first."""
        return collect_small(decoded, at_most) if self.may_use_driver else None

    def for_engine(self, decoded: DataFrame, size: Size) -> Records:
        """Return the records for the engine that will write them: collect them on the driver if that is the one."""
        return collect(decoded) if driver_reduces(self._writer.state_writes, size) else decoded

    def apply(self, decoded: Records, batch: BatchId, *, loaded: Sequence[int] = (), has_cells: bool = True) -> None:
        """Apply decoded records; see `StateWriter.apply`. Update `merged_by`."""
        if isinstance(decoded, DataFrame):
            self._spark.apply(decoded, batch, loaded=loaded, has_cells=has_cells)
        else:
            self._driver.apply(decoded, batch, loaded=loaded, has_cells=has_cells)
            self.merged_by |= dict.fromkeys(STATE_TABLES, StateWrites.DRIVER)
        if self._records_place():
            find_homes(self._writer.tables, BatchId(batch.checkpoint_id, -1))
