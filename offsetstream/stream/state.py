"""The state tables: what the records of groups make of them, and how they are written.

`StateRules` are pure functions of Arrow tables. Their input is any set of whole groups, each in one offsets partition.
So the driver runs them for all groups of a batch or load at once, and Spark tasks run them for some groups each.

The driver applies a batch. If it is too large to do so at once, it takes some groups after the other. Loaded rows must
replace the old ones in one commit, so tasks compute and write them if they are too many for the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.coordinator.partitioning import Coordinator
from offsetstream.coordinator.reduction import GROUP, group_facts, last_record_per_cell, new_coordinator_keeps
from offsetstream.coordinator.rows import Cell
from offsetstream.stream.records import Part, Records, few_tasks, in_coordinator_partition
from offsetstream.tables.matching import (
    RowKeys,
    merge_rows,
    of_groups,
    read_groups,
    rows_without_keys,
    with_all_columns,
)
from offsetstream.tables.names import (
    CELL_TABLES,
    COMMITTED_OFFSETS,
    DERIVED_TABLES,
    GROUP_CELLS,
    GROUPS,
    STATE_TABLES,
)
from offsetstream.tables.placement import uncertain_homes
from offsetstream.tables.rows import (
    CELLS_RENAMED,
    GROUP_CONSTANTS,
    Rows,
    cell_of,
    conform,
    from_rows,
    in_pieces,
    joined,
    partition_numbers,
    renamed,
    rows_of_group,
    to_python,
    with_constant_columns,
)
from offsetstream.tables.schema import DELETED, load_schema
from offsetstream.tables.sql import in_partitions
from offsetstream.tables.store import EVERY_ROW, Store
from offsetstream.tables.transaction import BatchId, Step, again_on_conflict, in_parallel, transaction_of
from offsetstream.tables.write import TableWriter

GroupKey = tuple[int, str]  # offsets partition and group id
Derive = Callable[[GroupKey, list[Cell]], dict[str, Rows] | None]
Placed = Callable[[pa.Table], pa.Table]
EXISTS = "exists"
_PLACE = "in_coordinator_partition"
_CELL = (*GROUP, "key_type", "key_json", "value_json", "record_offset", "record_timestamp")
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


@dataclass(frozen=True)
class Reduced:
    """The last record of each cell: `commits` and `cells`, with the columns of their tables and `DELETED`.

    `facts`: a row for each group (`group_facts`), with its log id.
    """

    commits: pa.Table
    cells: pa.Table
    facts: pa.Table


@dataclass(frozen=True)
class StateRules:
    """What records make of the state tables, with what they need to know apart from records.

    `is_classic`: the kind of coordinator (reference 5.9). `log_ids`: by offsets partition. `topic_names`: by topic id;
    the last two mappings may grow.
    """

    is_classic: bool
    log_ids: Mapping[int, int]
    topic_names: Mapping[str, str]

    def for_tasks(self) -> StateRules:
        """Return the rules as they are now, to be sent to Spark tasks."""
        return replace(self, log_ids=dict(self.log_ids), topic_names=dict(self.topic_names))

    def reduce(self, decoded: pa.Table) -> Reduced:
        """Reduce decoded records with the columns `value_offset` and `tombstone_offset`."""
        placed = decoded.append_column("log_id", partition_numbers(decoded, self.log_ids, 0))
        commits, cells = last_record_per_cell(placed)
        facts = group_facts(decoded, commits)
        return Reduced(
            renamed(commits, CELLS_RENAMED[COMMITTED_OFFSETS]),
            renamed(cells, CELLS_RENAMED[GROUP_CELLS]),
            facts.append_column("log_id", partition_numbers(facts, self.log_ids, 0)),
        )

    def with_existence(self, facts: pa.Table, existed: pa.Table, with_offsets: pa.Table) -> pa.Table:
        """Add to the facts whether the group `EXISTS` for the coordinator even without a cell.

        `existed`: rows of the groups that existed before. `with_offsets`: rows of those that have a committed offset
        afterwards, which only the classic coordinator asks for.
        """
        if self.is_classic:
            return facts.append_column(EXISTS, of_groups(facts, with_offsets))
        return facts.append_column(EXISTS, new_coordinator_keeps(facts, of_groups(facts, existed)))

    def derive(self, cells: pa.Table, facts: pa.Table) -> dict[str, pa.Table]:
        """Return the rows of the `DERIVED_TABLES` for groups. `cells`: their rows of `group_cells`."""
        has_cells = of_groups(facts, cells)
        known = {(row["offsets_partition"], row["group_id"]): row for row in facts.filter(has_cells).to_pylist()}

        def rows_of(key: GroupKey, own: list[Cell]) -> dict[str, Rows] | None:
            fact = known[key]
            place = {name: fact[name] for name in GROUP_CONSTANTS}
            return rows_of_group(own, key[1], self.topic_names, exists=fact[EXISTS], place=place)

        rows, without_cells = derived_tables(cells, rows_of), facts.filter(pc.and_not(facts[EXISTS], has_cells))
        rows[GROUPS] = pa.concat_tables([rows[GROUPS], offsets_only_groups(without_cells)])
        return rows

    def load(self, decoded: pa.Table) -> dict[str, pa.Table]:
        """Return the rows of all state tables for groups of which `decoded` has everything that their logs have."""
        reduced = self.reduce(decoded)
        rows = {
            name: conform(last.filter(pc.invert(last[DELETED])), load_schema(name))
            for name, last in ((COMMITTED_OFFSETS, reduced.commits), (GROUP_CELLS, reduced.cells))
        }
        facts = self.with_existence(reduced.facts, reduced.facts.slice(0, 0), rows[COMMITTED_OFFSETS])
        return rows | self.derive(rows[GROUP_CELLS], facts)


def derived_tables(cells: pa.Table, derive: Derive) -> dict[str, pa.Table]:
    """Return the rows of the derived tables: the results of `derive` for each group in `cells`.

    `cells`: rows of `group_cells`, in any order. Only one group at a time is converted to Python objects, which need
    some ten times the memory of Arrow's.
    """
    ordered = cells.sort_by([("offsets_partition", "ascending"), ("group_id", "ascending")])
    groups = groupby(to_python(ordered), lambda row: (row["offsets_partition"], row["group_id"]))
    found = (derive(key, [cell_of(row) for row in rows]) or {} for key, rows in groups)
    return joined(in_pieces(found, [*map(load_schema, DERIVED_TABLES)]))


def offsets_only_groups(places: pa.Table) -> pa.Table:
    """Return the rows of `groups` for groups that exist without a cell, as `derive_group` makes them.

    `places` has the columns of `GROUP_CONSTANTS` and group_id; nothing else differs. So the rows are built by column,
    which is fast for a million groups.
    """
    schema = load_schema(GROUPS)
    template = rows_of_group([], "", {}, exists=True, place=dict.fromkeys(GROUP_CONSTANTS)) or {}
    rows = from_rows(template[GROUPS], schema).take(pa.repeat(pa.scalar(0), places.num_rows))
    for name in (*GROUP_CONSTANTS, "group_id"):
        field = schema.arrow.field(name)
        rows = rows.set_column(schema.arrow.get_field_index(name), field, places[name].cast(field.type))
    return rows


def place_groups(tables: Store, placed_by: int | None, batch: BatchId) -> None:
    """Set in each row of the state tables whether it is in the partition of its group's coordinator.

    `placed_by`: see `in_coordinator_partition`. After a change of the partition count, groups in a former partition
    stay in the tables, as in the log: the broker of that partition loads them. Raise LeaseError if another job took
    over.
    """
    homes = uncertain_homes(tables)[0] if placed_by is None else {}
    _place(tables, partial(_placed, placed_by=placed_by, homes=homes), batch)


def find_homes(tables: Store, batch: BatchId) -> None:
    """Find the home of groups in several partitions: the one with the latest records. Used if records decide."""
    homes, are_settled = uncertain_homes(tables)
    if not are_settled:
        _place(tables, partial(_placed, placed_by=None, homes=homes), batch)


def _place(tables: Store, placed: Placed, batch: BatchId) -> None:
    for name in reversed(STATE_TABLES):  # `uncertain_homes` detects an interruption by the last ones
        parts = tables.open(name).rows(EVERY_ROW, ("offsets_partition", "group_id", _PLACE))
        if any(not part[_PLACE].equals(placed(part)[_PLACE]) for part in parts):
            _write(tables, name, placed, batch)


@again_on_conflict
def _write(tables: Store, name: str, placed: Placed, batch: BatchId) -> None:
    table = tables.open(name)
    table.replace(EVERY_ROW, map(placed, table.rows()), transaction_of(table, batch))


def _placed(rows: pa.Table, placed_by: int | None, homes: Mapping[str, int]) -> pa.Table:
    groups, places = (rows[name].combine_chunks() for name in ("group_id", "offsets_partition"))
    is_home = in_coordinator_partition(groups, places, placed_by)
    if homes:
        given = [homes.get(group_id) for group_id in groups.to_pylist()]
        is_home = pc.coalesce(pc.equal(pa.array(given, pa.int32()), places), is_home)
    return rows.set_column(rows.column_names.index(_PLACE), _PLACE, pa.chunked_array([is_home], pa.bool_()))
