"""Reduce a batch of decoded records to the last record of each cell, and to facts about each group.

Pure functions over Arrow tables. The tables have the codec's columns and `offsets_partition`, `record_offset`,
`value_offset` and `tombstone_offset` (of the key's last value and last tombstone), `in_coordinator_partition`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.codec.decoding import COMMIT_KEY_TYPES

# The records whose tombstone removes a group: classic, consumer, share, streams (reference 5.5, 5.7).
GROUP_KEY_TYPES = (2, 3, 11, 17)
GROUP = ("offsets_partition", "group_id")
COMMIT_CELL = ("offsets_partition", "group_id", "topic", "partition")
GROUP_CELL = ("offsets_partition", "group_id", "key_type", "key_json")


def last_record_per_cell(decoded: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the last record of each cell, as (offset commits, all others). Undecodable records are skipped."""
    good = decoded.filter(pc.is_null(decoded["error"]))
    is_commit = _is_in(good["key_type"], COMMIT_KEY_TYPES)
    return last_wins(good.filter(is_commit), COMMIT_CELL), last_wins(good.filter(pc.invert(is_commit)), GROUP_CELL)


def last_wins(records: pa.Table, key: Sequence[str], greatest: Sequence[str] = ()) -> pa.Table:
    """Reduce records to the last of each key by `record_offset`; `greatest` columns get their maximum over all of it.

    All record types of today are reduced so. A type whose records are a snapshot and updates of it needs another rule.
    """
    order = pc.sort_indices(records["record_offset"]).to_numpy()
    place = np.empty_like(order)  # of each record in this order; to sort the records would copy their texts
    place[order] = np.arange(len(order), dtype=order.dtype)
    numbered = records.select([*key, *greatest]).append_column("place", pa.array(place))
    ways = [(name, "max") for name in ("place", *greatest)]
    found = numbered.group_by(list(key), use_threads=False).aggregate(ways)
    last = records.take(pa.array(order[found["place_max"].to_numpy()]))
    for name in greatest:
        last = last.set_column(last.schema.get_field_index(name), name, found[f"{name}_max"])
    return last


def group_facts(decoded: pa.Table, commits: pa.Table) -> pa.Table:
    """Return a row for each group of a batch: what its records say about whether it exists (reference 5.9: 6, 7, 13).

    `commits` has the last commit of each cell of `decoded`. The columns, besides those of `GROUP`:

    - `in_coordinator_partition`.
    - `commit_offset`: of the last commit, even if a later tombstone deletes it; null without one.
    - `tombstone_offset`: of the last record that removed the group; null without one.
    - `is_touched`: whether the batch may change the group's rows, since it has more than commits.
    """
    good, none = decoded.filter(pc.is_null(decoded["error"])), pa.scalar(None, pa.int64())
    is_commit, is_group = (_is_in(good["key_type"], types) for types in (COMMIT_KEY_TYPES, GROUP_KEY_TYPES))
    told = {
        "in_coordinator_partition": good["in_coordinator_partition"],
        "commit_offset": pc.if_else(is_commit, good["value_offset"], none),
        "tombstone_offset": pc.if_else(is_group, good["tombstone_offset"], none),
        "is_touched": pc.invert(is_commit),
    }
    deleted = commits.filter(commits["is_tombstone"]).select(GROUP)
    deleted = deleted.append_column("is_touched", pa.repeat(pa.scalar(True), deleted.num_rows))
    rows = pa.concat_tables([pa.table({name: good[name] for name in GROUP} | told), deleted], promote_options="default")
    ways = dict(zip(told, ("first", "max", "max", "any"), strict=True))
    found = rows.group_by(list(GROUP), use_threads=False).aggregate(list(ways.items()))
    return found.select([*GROUP, *(f"{name}_{way}" for name, way in ways.items())]).rename_columns([*GROUP, *told])


def new_coordinator_keeps(facts: pa.Table, existed: pa.Array) -> pa.Array:
    """Return for each group whether the new coordinator has it afterwards, even if none of its cells is left.

    `existed`: whether it had the group before. Any commit makes a simple group; only the tombstone of the group's own
    record ends it (reference 5.3, 5.5, 5.10 item 5).
    """
    is_removed = pc.is_valid(facts["tombstone_offset"])
    commit, tombstone = (pc.fill_null(facts[name], -1) for name in ("commit_offset", "tombstone_offset"))
    return pc.or_(pc.greater(commit, tombstone), pc.and_not(existed, is_removed))


def _is_in(key_types: pa.ChunkedArray, some: Sequence[int]) -> pa.ChunkedArray:
    return pc.is_in(key_types, pa.array(some, key_types.type))
