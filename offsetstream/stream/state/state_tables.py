"""The state tables, written by one of two engines: what is chosen between them, and what both do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame

from offsetstream.coordinator.kinds import Coordinator
from offsetstream.stream.state.driver_state import DriverStateWriter
from offsetstream.stream.state.homes import settle_homes
from offsetstream.stream.state.size import Held, collect, collect_few
from offsetstream.stream.state.spark_state import SparkStateWriter
from offsetstream.tables.engines import Size, StateWrites, driver_reduces
from offsetstream.tables.names import STATE_TABLES
from offsetstream.tables.transaction import BatchId
from offsetstream.tables.write import TableWriter

Records_contra = TypeVar("Records_contra", contravariant=True)


class StateWriter(Protocol[Records_contra]):
    """An engine. It reduces records to the last of each cell, and merges these into `CELL_TABLES`; finds facts
    about their groups, and whether each exists; derives the groups' rows, and replaces those of the derived tables.
    """

    def apply(
        self, decoded: Records_contra, batch: BatchId, *, loaded: Sequence[int] = (), has_cells: bool = True
    ) -> None:
        """Apply decoded records, which have `value_offset` and `tombstone_offset`.

        `loaded` names the partitions of which `decoded` has everything: what it does not name there is deleted,
        and all their groups are derived anew. Without it only the groups that the records touch are. `has_cells`:
        whether there is any record but offset commits among them.
        """


class StateTables:
    """Applies records by the engine that can hold them; a `StateWriter` of either kind of records.

    `coordinator` is new or classic (reference 5.9); `topic_names` has the names of topic ids, and may grow.
    `records_place`: whether a group's latest records name its own partition. `merged_by` says who merged into each
    table last; who wants it of some merges clears it before them.
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

    def few(self, decoded: DataFrame, at_most: int) -> pa.Table | None:
        """Bring at most so many decoded records to the driver in one job; None if they are to be measured first."""
        return None if self._writer.state_writes is StateWrites.SPARK else collect_few(decoded, at_most)

    def held(self, decoded: Held, size: Size, *, is_load: bool = False) -> Held:
        """Return decoded records where they are to be written: on the driver, brought there if need be, or in Spark."""
        if isinstance(decoded, pa.Table):
            return decoded
        is_here = driver_reduces(self._writer.state_writes, size, is_load=is_load)
        return collect(decoded) if is_here else decoded

    def apply(self, decoded: Held, batch: BatchId, *, loaded: Sequence[int] = (), has_cells: bool = True) -> None:
        """Apply decoded records as `StateWriter` says; `merged_by` tells who merged."""
        if isinstance(decoded, DataFrame):
            self._spark.apply(decoded, batch, loaded=loaded, has_cells=has_cells)
        else:
            self._driver.apply(decoded, batch, loaded=loaded, has_cells=has_cells)
            self.merged_by |= dict.fromkeys(STATE_TABLES, StateWrites.DRIVER)
        if self._records_place():
            settle_homes(self._writer.tables, BatchId(batch.checkpoint_id, -1))
