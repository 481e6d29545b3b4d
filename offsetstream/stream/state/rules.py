"""What the records of groups make of the state tables: pure functions of Arrow tables.

Their input is any set of whole groups, each in one offsets partition. So the driver runs them for all groups of a batch
or load at once, and Spark tasks run them for some groups each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.coordinator.reduction import group_facts, last_record_per_cell, new_coordinator_keeps
from offsetstream.coordinator.rows import Cell
from offsetstream.tables.arrow_rows import conform, of_groups, partition_numbers, renamed
from offsetstream.tables.derived import GROUP_CONSTANTS, cell_of, rows_of_group
from offsetstream.tables.merge import DELETED
from offsetstream.tables.names import COMMITTED_OFFSETS, DERIVED_TABLES, GROUP_CELLS, GROUPS
from offsetstream.tables.plain_rows import Rows, from_rows
from offsetstream.tables.record_rows import CELLS_RENAMED
from offsetstream.tables.row_pieces import in_pieces, joined, to_python
from offsetstream.tables.schema import load_schema

GroupKey = tuple[int, str]  # offsets partition and group id
Derive = Callable[[GroupKey, list[Cell]], dict[str, Rows] | None]
EXISTS = "exists"


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
    """The rules, with what they need to know apart from records.

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
