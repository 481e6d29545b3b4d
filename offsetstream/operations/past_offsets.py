"""Read the offsets that groups had at a past time from the tables' history, with objections if they are uncertain."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from offsetstream.cluster.answers import CommittedOffset, Place, omitted
from offsetstream.cluster.metadata import MetadataCache
from offsetstream.errors import OffsetstreamError
from offsetstream.operations.plan import BEHIND, Objection
from offsetstream.tables.filtered_names import FilteredNames
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.names import OFFSETS_PARTITIONS
from offsetstream.tables.placement import read_placement
from offsetstream.tables.small_tables import as_utc
from offsetstream.tables.store import Store
from offsetstream.views.instant import InstantReader


@dataclass
class PastOffsets:
    """Offsets of groups at a past time, the ids of their topics at that time, and objections.

    Groups and topics that the tables' filters skip are not included.
    """

    filtered: FilteredNames
    offsets: dict[str, dict[Place, CommittedOffset]] = field(default_factory=dict)
    topic_ids: dict[tuple[str, Place], set[str]] = field(default_factory=dict)
    objections: list[Objection] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_past_offsets(store: Store, at: datetime, group_ids: Collection[str] | None) -> PastOffsets:
    """Return the offsets of the groups (None: all) at a past time.

    Raises OffsetstreamError if the history does not reach back that far, a group had no offsets at that time, or the
    tables' filters skip it.
    """
    reader = InstantReader(store, at, group_ids)
    reader.define_table("committed_offsets")
    rows = reader.connection.table("committed_offsets").fetchall()
    names = reader.connection.table("committed_offsets").columns
    found = PastOffsets(FilteredNames.of(store))
    ids = _former_topic_ids(store, at)
    for row in (dict(zip(names, each, strict=True)) for each in rows):
        if not row["in_coordinator_partition"]:
            continue
        place = row["topic"], row["partition"]
        if row["committed_offset"] < 0:
            found.notes.append(omitted(row["group_id"], place, row["committed_offset"]))
        else:
            offset = CommittedOffset(row["committed_offset"], row["leader_epoch"], row["metadata"] or "")
            found.offsets.setdefault(row["group_id"], {})[place] = offset
            known = {row["topic_id"]} if row["topic_id"] else ids.get(row["topic"], set())
            found.topic_ids[row["group_id"], place] = known
    _require_known(reader.unknown, found, group_ids, at)
    found.objections += _tables_behind(store, at, found.offsets)
    return found


def require_not_filtered(then: PastOffsets, topics: Collection[str], at: datetime) -> None:
    """Raise OffsetstreamError if the tables' filters skip one of the topics, so its offsets are unknown."""
    for topic in then.filtered.topics(topics):
        raise OffsetstreamError(
            f"The offsets for topic '{topic}' at {at.isoformat()} are unknown: {then.filtered.note}"
        )


def require_same_topics(
    store: Store, cluster: MetadataCache, rows: Collection[Mapping[str, Any]], at: datetime | None
) -> None:
    """Raise OffsetstreamError if the topic of a committed offset (now, or `at` a past time) was recreated since."""
    cluster.refresh({row["topic"] for row in rows})
    known, former_ids = cluster.known, {} if at is None else _former_topic_ids(store, at)
    for row in rows:
        ids = {row["topic_id"]} if row["topic_id"] else former_ids.get(row["topic"], set())
        live = known[row["topic"]].topic_id if row["topic"] in known else None
        if live is not None and ids and live not in ids:
            raise OffsetstreamError(
                f"Topic {row['topic']} was recreated since then, so its offsets belong to other records. "
                "Name the other topics with --topic"
            )


def _require_known(
    unknown: list[dict[str, Any]], found: PastOffsets, group_ids: Collection[str] | None, at: datetime
) -> None:
    """Raise OffsetstreamError unless the offsets of all requested groups are known: a partial answer would mislead."""
    relevant = [row for row in unknown if group_ids is None or row["group_id"] in group_ids]
    if relevant:
        row = relevant[0]
        subject = "all groups" if row["group_id"] is None else f"group '{row['group_id']}'"
        before = as_utc(row["unknown_before"]).isoformat() if row["unknown_before"] else "a time that is unknown yet"
        reason = str(row["unknown_reason"]).replace("unknown_before", before)
        raise OffsetstreamError(f"The offsets of {subject} at {at.isoformat()} are unknown: {reason}")
    missing = sorted(set(group_ids or ()) - set(found.offsets))
    for group_id in found.filtered.groups(missing):
        raise OffsetstreamError(
            f"The offsets of group '{group_id}' at {at.isoformat()} are unknown: {found.filtered.note}"
        )
    for group_id in missing:
        raise OffsetstreamError(f"Group '{group_id}' had no committed offset at {at.isoformat()}")


def _former_topic_ids(store: Store, at: datetime) -> dict[str, set[str]]:
    """Return the possible ids of topics at a past time, as far as the job has seen them."""
    candidates: dict[str, list[tuple[str, bool]]] = {}
    for row in Lookup(store).rows("topics", ("topic", "topic_id", "first_seen_at", "deleted_at")):
        if row["deleted_at"] is None or as_utc(row["deleted_at"]) > at:
            was_seen = as_utc(row["first_seen_at"]) <= at
            candidates.setdefault(row["topic"], []).append((row["topic_id"], was_seen))
    return {
        topic: {topic_id for topic_id, was_seen in ids if was_seen or not any(each for _, each in ids)}
        for topic, ids in candidates.items()
    }


def _tables_behind(store: Store, at: datetime, group_ids: Collection[str]) -> Iterator[Objection]:
    lookup = Lookup(store)
    rows, placement = lookup.rows(OFFSETS_PARTITIONS, ("offsets_partition", "caught_up_at")), read_placement(lookup)
    caught_up = {row["offsets_partition"]: row["caught_up_at"] for row in rows}
    for group_id in sorted(group_ids):
        number = placement.of(group_id)
        if number is None:
            yield Objection(BEHIND, group_id, None, "its offsets partition is unknown")
            continue
        known = caught_up.get(number)
        if known is None or as_utc(known) < at:
            extent = (
                "not read yet" if known is None else f"read up to {as_utc(known).isoformat(timespec='seconds')} only"
            )
            reason = f"offsets partition {number} is {extent}: start the job, or wait for it"
            yield Objection(BEHIND, group_id, None, reason)
