"""Write the state tables: `rules.py` computes their rows, the store merges them.

The driver applies a batch. If it is too large to do so at once, it takes some groups after the other. Loaded rows must
replace the old ones in one commit, so tasks compute and write them if they are too many for the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.coordinator.partitioning import Coordinator
from offsetstream.coordinator.reduction import GROUP
from offsetstream.stream.decode import few_tasks
from offsetstream.stream.state.homes import find_homes
from offsetstream.stream.state.rules import StateRules
from offsetstream.stream.state.size import Part, Records
from offsetstream.tables.arrow_rows import merge_rows, of_groups, read_groups, with_constant_columns
from offsetstream.tables.matching import with_all_columns
from offsetstream.tables.merge import DELETED
from offsetstream.tables.names import (
    CELL_TABLES,
    COMMITTED_OFFSETS,
    DERIVED_TABLES,
    GROUP_CELLS,
    GROUPS,
    STATE_TABLES,
)
from offsetstream.tables.parallel import Step, in_parallel
from offsetstream.tables.row_keys import RowKeys, rows_without_keys
from offsetstream.tables.schema import load_schema
from offsetstream.tables.sql import in_partitions
from offsetstream.tables.store import Store
from offsetstream.tables.transaction import BatchId
from offsetstream.tables.write import TableWriter

_CELL = (*GROUP, "key_type", "key_json", "value_version", "value_json", "record_offset", "record_timestamp")
# What one task of a load computes at once, beside the other tasks of its executor.
_TASK_ROWS, _TASK_BYTES = 200_000, 32 << 20


class StateTables:
    """Apply decoded records with the columns `value_offset` and `tombstone_offset`, on the driver or in tasks.

    `coordinator`: new or classic (reference 5.9). `topic_names`: names by topic id; the mapping may grow.
    `records_place`: whether the latest records decide the home partition of a group.
    """

    def __init__(
        self,
        tables: Store,
        coordinator: Coordinator,
        log_ids: Mapping[int, int],
        topic_names: Mapping[str, str],
        records_place: Callable[[], bool] = lambda: False,
    ) -> None:
        self._tables = tables
        self._rules = StateRules(coordinator == "classic", log_ids, topic_names)
        self._records_place = records_place

    def apply(self, decoded: Records, batch: BatchId, *, loaded: Sequence[int] = (), has_cells: bool = True) -> None:
        """Apply decoded records.

        `loaded`: partitions of which `decoded` has everything. All their rows are replaced. Otherwise, only rows of the
        records' groups change. `has_cells`: whether there are records other than offset commits.
        """
        if not loaded:
            for part, of_batch in _portions(decoded, batch):
                self._apply(part, of_batch, has_cells=has_cells)
        elif isinstance(decoded, pa.Table):
            self._load(decoded, batch, in_partitions(loaded))
        else:
            self._load_in_tasks(decoded, batch, in_partitions(loaded))
        if self._records_place():
            find_homes(self._tables, BatchId(batch.checkpoint_id, -1))

    def _apply(self, decoded: pa.Table, batch: BatchId, *, has_cells: bool) -> None:
        reduced, existed = self._rules.reduce(decoded), list[pa.Table]()
        merge = partial(merge_rows, self._tables, batch=batch, newer_only=True)
        steps: list[Step] = [partial(merge, COMMITTED_OFFSETS, reduced.commits)]
        if has_cells:
            steps.append(partial(merge, GROUP_CELLS, reduced.cells))
        steps.append(lambda: existed.append(read_groups(self._tables, GROUPS, reduced.facts, GROUP)))
        in_parallel(steps)
        is_new = pc.invert(of_groups(reduced.facts, existed[0]))
        touched = reduced.facts.filter(pc.or_(reduced.facts["is_touched"], is_new))
        if not touched.num_rows:
            return
        asked = touched if self._rules.is_classic else touched.slice(0, 0)
        with_offsets = read_groups(self._tables, COMMITTED_OFFSETS, asked, GROUP)
        facts = self._rules.with_existence(touched, existed[0], with_offsets)
        rows = self._rules.derive(read_groups(self._tables, GROUP_CELLS, touched, _CELL), facts)
        in_parallel([partial(self._replace, name, rows[name], touched, batch) for name in DERIVED_TABLES])

    def _replace(self, name: str, derived: pa.Table, groups: pa.Table, batch: BatchId) -> None:
        """Replace the rows of the groups with the derived rows."""
        key, rows = load_schema(name).key, with_constant_columns(derived, {DELETED: False})
        present = read_groups(self._tables, name, groups, key)
        if present.num_rows:
            gone = with_constant_columns(rows_without_keys(present, RowKeys(rows, key)), {DELETED: True})
            rows = pa.concat_tables([rows, with_all_columns(gone, rows.schema)])
        merge_rows(self._tables, name, rows, batch)

    def _load(self, decoded: pa.Table, batch: BatchId, where: str) -> None:
        rows = self._rules.load(decoded)
        merge = partial(merge_rows, self._tables, batch=batch, replace_where=where)
        for names in (CELL_TABLES, DERIVED_TABLES):
            in_parallel([partial(merge, name, rows[name]) for name in names])

    def _load_in_tasks(self, part: Part, batch: BatchId, where: str) -> None:
        spark, rules = part.decoded.sparkSession, self._rules.for_tasks()
        tasks = max(few_tasks(spark), part.size.parts(_TASK_ROWS, _TASK_BYTES))
        writer, groups = TableWriter(spark, self._tables), part.decoded.repartition(tasks, *GROUP)
        with writer.computed(groups, partial(_load_groups, rules=rules), STATE_TABLES, batch) as rows:
            for names in (CELL_TABLES, DERIVED_TABLES):
                writer.replace({name: rows[name] for name in names}, batch, where)


def _portions(decoded: Records, batch: BatchId) -> Iterator[tuple[pa.Table, BatchId]]:
    """Yield the records of a batch on the driver, with whole groups in each portion."""
    if isinstance(decoded, pa.Table):
        yield decoded, batch
        return
    count = decoded.size.portions
    for at in range(count):
        portion = decoded.decoded.where(f"pmod(hash({', '.join(GROUP)}), {count}) = {at}").toArrow()
        yield portion, replace(batch, has_more=at < count - 1)


def _load_groups(batches: Iterator[pa.RecordBatch], rules: StateRules) -> Iterator[dict[str, pa.Table]]:
    if given := list(batches):
        yield rules.load(pa.Table.from_batches(given))
