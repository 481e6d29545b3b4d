"""What groups had committed at an instant, by the tables' history, and how far that may be believed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from offsetstream.cluster.committed import CommittedOffset, Place, omitted
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
class Then:
    """Offsets of groups as they were, the ids that their topics had, and what is to be said against them.

    What is left out by the filters of the tables is not among them.
    """

    filtered: FilteredNames
    offsets: dict[str, dict[Place, CommittedOffset]] = field(default_factory=dict)
    topic_ids: dict[tuple[str, Place], set[str]] = field(default_factory=dict)
    objections: list[Objection] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def offsets_then(store: Store, at: datetime, group_ids: Collection[str] | None) -> Then:
    """Return what the groups (None: all) had at an instant.

    OffsetstreamError where the history does not reach back so far, or tells of no such group, as it has no offsets or
    the filters of the tables leave it out.
    """
    reader = InstantReader(store, at, group_ids)
    reader.define_table("committed_offsets")
    rows = reader.connection.table("committed_offsets").fetchall()
    names = reader.connection.table("committed_offsets").columns
    found = Then(FilteredNames.of(store))
    ids = _ids_of_then(store, at)
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
    found.objections += _behind(store, at, found.offsets)
    return found


def require_told(then: Then, topics: Collection[str], at: datetime) -> None:
    """Raise OffsetstreamError where the filters of the tables leave out one of the topics, so that nothing is told."""
    for topic in then.filtered.topics(topics):
        raise OffsetstreamError(
            f"what was committed of topic '{topic}' at {at.isoformat()} is not known: {then.filtered.note}"
        )


def require_same_topics(
    store: Store, cluster: MetadataCache, rows: Collection[Mapping[str, Any]], at: datetime | None
) -> None:
    """Raise OffsetstreamError where the topic of a committed offset, of now or of then, is another one by now."""
    cluster.refresh({row["topic"] for row in rows})
    known, of_then = cluster.known, {} if at is None else _ids_of_then(store, at)
    for row in rows:
        ids = {row["topic_id"]} if row["topic_id"] else of_then.get(row["topic"], set())
        live = known[row["topic"]].topic_id if row["topic"] in known else None
        if live is not None and ids and live not in ids:
            raise OffsetstreamError(
                f"the topic {row['topic']} was recreated since: the offsets of then are of other records; name the "
                "others by --topic"
            )


def _require_known(unknown: list[dict[str, Any]], found: Then, group_ids: Collection[str] | None, at: datetime) -> None:
    """Raise OffsetstreamError unless all that is wanted is told: a part of it would be taken for the whole."""
    of_groups = [row for row in unknown if group_ids is None or row["group_id"] in group_ids]
    if of_groups:
        row = of_groups[0]
        whose = "all groups" if row["group_id"] is None else f"group '{row['group_id']}'"
        before = as_utc(row["unknown_before"]).isoformat() if row["unknown_before"] else "a time that is not known yet"
        why = str(row["unknown_reason"]).replace("unknown_before", before)
        raise OffsetstreamError(f"what {whose} had at {at.isoformat()} is not known: {why}")
    missing, then = sorted(set(group_ids or ()) - set(found.offsets)), at.isoformat()
    for group_id in found.filtered.groups(missing):
        raise OffsetstreamError(f"what group '{group_id}' had at {then} is not known: {found.filtered.note}")
    for group_id in missing:
        raise OffsetstreamError(f"group '{group_id}' had no committed offset at {then}")


def _ids_of_then(store: Store, at: datetime) -> dict[str, set[str]]:
    """Return the ids that topics had at an instant, as far as the job has seen; of several that may be, all."""
    seen: dict[str, list[tuple[str, bool]]] = {}
    for row in Lookup(store).rows("topics", ("topic", "topic_id", "first_seen_at", "deleted_at")):
        if row["deleted_at"] is None or as_utc(row["deleted_at"]) > at:
            was_seen = as_utc(row["first_seen_at"]) <= at
            seen.setdefault(row["topic"], []).append((row["topic_id"], was_seen))
    return {
        topic: {topic_id for topic_id, was_seen in found if was_seen or not any(each for _, each in found)}
        for topic, found in seen.items()
    }


def _behind(store: Store, at: datetime, group_ids: Collection[str]) -> Iterator[Objection]:
    lookup = Lookup(store)
    rows, placement = lookup.rows(OFFSETS_PARTITIONS, ("offsets_partition", "caught_up_at")), read_placement(lookup)
    caught_up = {row["offsets_partition"]: row["caught_up_at"] for row in rows}
    for group_id in sorted(group_ids):
        number = placement.of(group_id)
        if number is None:
            yield Objection(BEHIND, group_id, None, "which offsets partition it has is not known")
            continue
        known = caught_up.get(number)
        if known is None or as_utc(known) < at:
            until = "yet" if known is None else f"after {as_utc(known).isoformat(timespec='seconds')}"
            told = f"the tables have not all of offsets partition {number} {until}: start the job, or wait for it"
            yield Objection(BEHIND, group_id, None, told)
