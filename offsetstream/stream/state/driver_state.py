"""The state tables after a small batch: reduced, derived and merged on the driver, in tenths of the time of Spark jobs.

It does what :class:`~offsetstream.stream.state.spark_state.SparkStateWriter` does for batches of any size.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from offsetstream.coordinator.cells import Cell
from offsetstream.coordinator.reduction import GroupFacts, GroupKey, group_facts, last_of_cells
from offsetstream.stream.state.driver_derive import derived_tables
from offsetstream.tables.arrow_rows import (
    merge_rows,
    number_of,
    read_groups,
    renamed,
    side_by_side,
    with_constants,
)
from offsetstream.tables.derived import DERIVED_TABLES, Rows, rows_of_group
from offsetstream.tables.matching import keys_of, without
from offsetstream.tables.merge import DELETED, of_partitions
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.replace import completed
from offsetstream.tables.schema import load_schema
from offsetstream.tables.transaction import BatchId

_GROUP = ("offsets_partition", "group_id")
_CELL = (*_GROUP, "key_type", "key_json", "value_version", "value_json", "record_offset", "record_timestamp")


class DriverStateWriter:
    """Applies small batches, as Arrow tables of decoded records, to the state tables."""

    def __init__(
        self, tables: PathStore, coordinator: str, log_ids: Mapping[int, int], topic_names: Mapping[str, str]
    ) -> None:
        self._tables = tables
        self._is_classic = coordinator == "classic"
        self._log_ids = log_ids
        self._topic_names = topic_names

    def apply(self, decoded: pa.Table, batch: BatchId, *, loaded: Sequence[int] = ()) -> None:
        """Apply decoded records; ``loaded`` names the partitions of which they are everything.

        See ``SparkStateWriter.apply``.
        """
        replace_where = of_partitions(loaded) if loaded else None
        commits, cells = last_of_cells(_placed(decoded, self._log_ids))
        merge = partial(merge_rows, self._tables, batch=batch, newer_only=True, replace_where=replace_where)
        columns = {"value_bytes": "value_size", DELETED: "is_tombstone"}
        committed = renamed(commits, columns | {"key_version": "key_type"})
        side_by_side(
            [
                partial(merge, "committed_offsets", committed),
                partial(merge, "group_cells", renamed(cells, columns)),
            ]
        )
        facts = group_facts(decoded, commits)
        self._derive(facts, self._exists_after(facts, is_load=bool(loaded)), batch, replace_where)

    def _exists_after(self, facts: Mapping[GroupKey, GroupFacts], *, is_load: bool) -> dict[GroupKey, bool]:
        """Return, for each group whose rows may change, whether the coordinator holds it even without a cell."""
        existed = set() if is_load else self._groups_in("groups", facts)
        touched = {key: own for key, own in facts.items() if own.is_touched or key not in existed}
        if self._is_classic:
            with_offsets = self._groups_in("committed_offsets", touched)
            return {key: key in with_offsets for key in touched}
        return {key: own.new_coordinator_keeps(existed=key in existed) for key, own in touched.items()}

    def _groups_in(self, table: str, groups: Collection[GroupKey]) -> set[GroupKey]:
        found = read_groups(self._tables, table, groups, _GROUP)
        return set(zip(*(found[name].to_pylist() for name in _GROUP), strict=True))

    def _derive(
        self,
        facts: Mapping[GroupKey, GroupFacts],
        exists: Mapping[GroupKey, bool],
        batch: BatchId,
        replace_where: str | None,
    ) -> None:
        if not exists and replace_where is None:
            return
        cells = read_groups(self._tables, "group_cells", exists, _CELL)

        def derive(key: GroupKey, own: list[Cell]) -> dict[str, Rows] | None:
            place = self._place(key, facts[key])
            return rows_of_group(own, key[1], self._topic_names, exists=exists[key], place=place)

        rows = derived_tables(cells, exists.keys(), derive)
        side_by_side(
            [partial(self._replace, name, rows[name], exists, batch, replace_where) for name in DERIVED_TABLES]
        )

    def _place(self, key: GroupKey, facts: GroupFacts) -> dict[str, Any]:
        return {
            "offsets_partition": key[0],
            "log_id": self._log_ids.get(key[0], 0),
            "in_coordinator_partition": facts.in_coordinator_partition,
        }

    def _replace(
        self,
        name: str,
        derived: pa.Table,
        groups: Collection[GroupKey],
        batch: BatchId,
        replace_where: str | None,
    ) -> None:
        """Make the derived rows the groups' only ones."""
        schema = load_schema(name)
        rows = with_constants(derived, {DELETED: False})
        if replace_where is None:
            present = read_groups(self._tables, name, groups, schema.key)
            gone = with_constants(without(present, keys_of(rows, schema.key), schema.key), {DELETED: True})
            rows = pa.concat_tables([rows, completed(gone, rows.schema)])
        merge_rows(self._tables, name, rows, batch, replace_where=replace_where)


def _placed(decoded: pa.Table, log_ids: Mapping[int, int]) -> pa.Table:
    return decoded.append_column("log_id", number_of(decoded, log_ids, 0))
