"""Reduce a batch of decoded records to the last record of each cell, and to facts about each group.

Pure functions over Arrow tables. The tables have the codec's columns and `offsets_partition`, `record_offset`,
`value_offset` and `tombstone_offset` (of the key's last value and last tombstone), `in_coordinator_partition`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

COMMIT_KEY_TYPES = (0, 1)
# The records whose tombstone removes a group: classic, consumer, share, streams (reference 5.5, 5.7).
GROUP_KEY_TYPES = (2, 3, 11, 17)
COMMIT_CELL = ("offsets_partition", "group_id", "topic", "partition")
GROUP_CELL = ("offsets_partition", "group_id", "key_type", "key_json")

GroupKey = tuple[int, str]  # offsets partition and group id


@dataclass(slots=True)
class GroupFacts:
    """What the records of a batch say about whether a group exists (reference 5.9, rows 6, 7 and 13)."""

    in_coordinator_partition: bool
    commit_offset: int = -1  # of the last commit, even if a later tombstone deletes it
    tombstone_offset: int = -1  # of the last record that removed the group
    is_touched: bool = False  # the batch may change the group's rows: it has more than commits

    def new_coordinator_keeps(self, *, existed: bool) -> bool:
        """Whether the new coordinator has the group afterwards, even if none of its cells is left.

        Any commit makes a simple group; only the tombstone of the group's own record ends it (reference
        5.3, 5.5, 5.10 item 5).
        """
        return self.commit_offset > self.tombstone_offset or (existed and self.tombstone_offset < 0)


def last_record_per_cell(decoded: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the last record of each cell, as (offset commits, all others). Undecodable records are skipped."""
    good = decoded.filter(pc.is_null(decoded["error"]))
    is_commit = pc.is_in(good["key_type"], pa.array(COMMIT_KEY_TYPES, good["key_type"].type))
    commits, others = (good.filter(kind).sort_by("record_offset") for kind in (is_commit, pc.invert(is_commit)))
    return last_wins(commits, COMMIT_CELL), last_wins(others, GROUP_CELL)


def last_wins(records: pa.Table, key: Sequence[str], greatest: Sequence[str] = ()) -> pa.Table:
    """Reduce records in log order to the last of each key; the columns `greatest` get their maximum over all of it.

    All record types of today are reduced so. A type whose records are a snapshot and updates of it needs another rule.
    """
    numbered = records.select([*key, *greatest]).append_column("at", pa.array(np.arange(records.num_rows)))
    found = numbered.group_by(list(key), use_threads=False).aggregate([(name, "max") for name in ("at", *greatest)])
    last = records.take(found["at_max"])
    for name in greatest:
        last = last.set_column(last.schema.get_field_index(name), name, found[f"{name}_max"])
    return last


def group_facts(decoded: pa.Table, commits: pa.Table) -> dict[GroupKey, GroupFacts]:
    """Return the facts of each group in the batch. `commits` has the last commit of each cell of `decoded`."""
    facts: dict[GroupKey, GroupFacts] = {}
    good = decoded.filter(pc.is_null(decoded["error"]))
    columns = ("offsets_partition", "group_id", "in_coordinator_partition", "key_type")
    kinds = good.group_by(list(columns)).aggregate([("value_offset", "max"), ("tombstone_offset", "max")])
    for partition, group_id, inside, key_type, value, tombstone in _rows(kinds, *columns, *_OFFSETS):
        entry = facts.setdefault((partition, group_id), GroupFacts(inside))
        if key_type in COMMIT_KEY_TYPES:
            entry.commit_offset = max(entry.commit_offset, -1 if value is None else value)
        else:
            entry.is_touched = True
            if key_type in GROUP_KEY_TYPES and tombstone is not None:
                entry.tombstone_offset = max(entry.tombstone_offset, tombstone)
    for partition, group_id in _rows(commits.filter(commits["is_tombstone"]), "offsets_partition", "group_id"):
        facts[partition, group_id].is_touched = True
    return facts


_OFFSETS = ("value_offset_max", "tombstone_offset_max")


def _rows(table: pa.Table, *columns: str) -> Iterator[tuple]:  # type: ignore[type-arg]  # of any columns
    return zip(*(table[name].to_pylist() for name in columns), strict=True)
