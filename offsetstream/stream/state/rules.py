"""What the records of groups make of the state tables: pure functions of Arrow tables.

Their input is any set of whole groups, each in one offsets partition. So the driver runs them for all groups of a batch
or load at once, and Spark tasks run them for some groups each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.coordinator.cells import Cell
from offsetstream.coordinator.reduction import GroupFacts, GroupKey, group_facts, last_record_per_cell
from offsetstream.tables.arrow_rows import conform, group_keys, partition_numbers, renamed
from offsetstream.tables.derived import GROUP_CONSTANTS, cell_of, rows_of_group
from offsetstream.tables.merge import DELETED
from offsetstream.tables.names import COMMITTED_OFFSETS, DERIVED_TABLES, GROUP_CELLS, GROUPS
from offsetstream.tables.plain_rows import Rows, from_rows
from offsetstream.tables.record_rows import CELLS_RENAMED
from offsetstream.tables.row_pieces import in_pieces, joined, to_python
from offsetstream.tables.schema import load_schema

Facts = Mapping[GroupKey, GroupFacts]
Exists = Mapping[GroupKey, bool]
Row = dict[str, Any]
Derive = Callable[[GroupKey, list[Cell]], dict[str, Rows] | None]


@dataclass(frozen=True)
class Reduced:
    """The last record of each cell: `commits` and `cells`, with the columns of their tables and `DELETED`."""

    commits: pa.Table
    cells: pa.Table
    facts: Facts


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
        return Reduced(
            renamed(commits, CELLS_RENAMED[COMMITTED_OFFSETS]),
            renamed(cells, CELLS_RENAMED[GROUP_CELLS]),
            group_facts(decoded, commits),
        )

    def exists(self, facts: Facts, existed: Collection[GroupKey], with_offsets: Collection[GroupKey]) -> Exists:
        """Return, for each group of the facts, whether it exists for the coordinator even without a cell.

        `existed`: the groups that existed before. `with_offsets`: those that have a committed offset afterwards.
        """
        if self.is_classic:
            return {key: key in with_offsets for key in facts}
        return {key: own.new_coordinator_keeps(existed=key in existed) for key, own in facts.items()}

    def derive(self, cells: pa.Table, facts: Facts, exists: Exists) -> dict[str, pa.Table]:
        """Return the rows of the `DERIVED_TABLES` for the groups in `exists`. `cells`: their rows of `group_cells`."""

        def rows_of(key: GroupKey, own: list[Cell]) -> dict[str, Rows] | None:
            return rows_of_group(own, key[1], self.topic_names, exists=exists[key], place=self._place(key, facts[key]))

        rows, with_cells = derived_tables(cells, rows_of), group_keys(cells)
        without_cells = (key for key, does_exist in exists.items() if does_exist and key not in with_cells)
        places = [{"group_id": key[1], **self._place(key, facts[key])} for key in without_cells]
        rows[GROUPS] = pa.concat_tables([rows[GROUPS], offsets_only_groups(places)])
        return rows

    def load(self, decoded: pa.Table) -> dict[str, pa.Table]:
        """Return the rows of all state tables for groups of which `decoded` has everything that their logs have."""
        reduced = self.reduce(decoded)
        rows = {
            name: conform(last.filter(pc.invert(last[DELETED])), load_schema(name))
            for name, last in ((COMMITTED_OFFSETS, reduced.commits), (GROUP_CELLS, reduced.cells))
        }
        with_offsets = group_keys(rows[COMMITTED_OFFSETS]) if self.is_classic else ()
        exists = self.exists(reduced.facts, (), with_offsets)
        return rows | self.derive(rows[GROUP_CELLS], reduced.facts, exists)

    def _place(self, key: GroupKey, facts: GroupFacts) -> Row:
        return {
            "offsets_partition": key[0],
            "log_id": self.log_ids.get(key[0], 0),
            "in_coordinator_partition": facts.in_coordinator_partition,
        }


def derived_tables(cells: pa.Table, derive: Derive) -> dict[str, pa.Table]:
    """Return the rows of the derived tables: the results of `derive` for each group in `cells`.

    `cells`: rows of `group_cells`, in any order. Only one group at a time is converted to Python objects, which need
    some ten times the memory of Arrow's.
    """
    ordered = cells.sort_by([("offsets_partition", "ascending"), ("group_id", "ascending")])
    groups = groupby(to_python(ordered), lambda row: (row["offsets_partition"], row["group_id"]))
    found = (derive(key, [cell_of(row) for row in rows]) or {} for key, rows in groups)
    return joined(in_pieces(found, [*map(load_schema, DERIVED_TABLES)]))


def offsets_only_groups(places: Sequence[Row]) -> pa.Table:
    """Return the rows of `groups` for groups that exist without a cell, as `derive_group` makes them.

    `places` have the columns of `GROUP_CONSTANTS` and group_id; nothing else differs. So the rows are built by column,
    which is fast for a million groups.
    """
    schema = load_schema(GROUPS)
    template = rows_of_group([], "", {}, exists=True, place=dict.fromkeys(GROUP_CONSTANTS)) or {}
    rows = from_rows(template[GROUPS], schema).take(pa.repeat(pa.scalar(0), len(places)))
    for name in (*GROUP_CONSTANTS, "group_id"):
        field = schema.arrow.field(name)
        values = pa.array([place[name] for place in places], field.type)
        rows = rows.set_column(schema.arrow.get_field_index(name), field, values)
    return rows
