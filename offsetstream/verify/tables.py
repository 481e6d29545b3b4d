"""Read the table rows that can be compared with a cluster's answers, and their partitions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from offsetstream.tables.lookup import Lookup
from offsetstream.tables.placement import Placement, read_placement

Row = dict[str, Any]
_COLUMNS = {
    "groups": "group_id group_type state is_simple protocol_type protocol group_epoch assignment_epoch member_count",
    "group_members": (
        "group_id member_id group_instance_id client_id client_host member_epoch is_classic_protocol process_id "
        "user_endpoint topology_epoch"
    ),
    "member_assignments": "group_id member_id kind subtopology_id topic_id topic partition",
    "committed_offsets": "group_id topic partition committed_offset leader_epoch metadata",
}
_STREAMS_GROUP, _VALIDATED = 17, "validatedTopologyEpoch"
_PARTITIONS = ["offsets_partition", "load_state", "coordinator_id", "next_offset", "filters"]


@dataclass(frozen=True)
class TableRows:
    """Rows of the state tables in their group's own offsets partition, by table, and the rows of the partitions."""

    rows: dict[str, list[Row]]
    partitions: dict[int, Row]
    deleted_topics: frozenset[str]  # their names and ids: no broker answers for these
    homes: Mapping[str, int] | None = None  # of `Placement`
    not_validated: frozenset[str] = frozenset()  # streams groups whose record does not confirm that their topics exist

    @property
    def placement(self) -> Placement:
        """Return the placement: each group's own offsets partition."""
        return Placement(len(self.partitions), self.homes)


def read_tables(lookup: Lookup) -> TableRows:
    """Read everything to compare, without groups that a change of the partition count left behind.

    Read the positions of the partitions first, since the job writes them last: the rows are then at least as new.
    """
    partitions = {row["offsets_partition"]: row for row in lookup.rows("offsets_partitions", _PARTITIONS)}
    inside = {"in_coordinator_partition": [True]}
    rows = {
        table: lookup.rows(table, ["offsets_partition", *columns.split()], inside)
        for table, columns in _COLUMNS.items()
    }
    topics = lookup.rows("topics", ["topic_id", "topic", "deleted_at"])
    gone = {name for row in topics if row["deleted_at"] is not None for name in (row["topic"], row["topic_id"])}
    gone -= {row["topic"] for row in topics if row["deleted_at"] is None}
    return TableRows(rows, partitions, frozenset(gone), read_placement(lookup).homes, _not_validated(lookup, rows))


def _not_validated(lookup: Lookup, rows: Mapping[str, list[Row]]) -> frozenset[str]:
    groups = [row["group_id"] for row in rows["groups"] if row["state"] == "NotReady"]
    where = {"group_id": groups, "key_type": [_STREAMS_GROUP], "in_coordinator_partition": [True]}
    cells = lookup.rows("group_cells", ["group_id", "value_json"], where) if groups else []
    return frozenset(row["group_id"] for row in cells if _VALIDATED not in json.loads(row["value_json"])["data"])
