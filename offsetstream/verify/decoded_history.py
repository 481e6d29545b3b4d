"""Compare the decoded history: its end with the state tables, and everything before with the records.

The last change of each cell must be its row in the state tables (`decoded_differences`). `compare_derivation` decodes
each step again and compares row by row. In each log it starts where decoding starts (`decoded_logs`) or where retention
has deleted nothing, whichever is later. It ends where decoding ends; in a log that is over, at the last change that the
tables have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.group_history.decoding import IN_SPAN, UP_TO_END, Decoding, Span, Spans, within
from offsetstream.group_history.driver_changes import STORED, changes_on_driver, decoding_rows
from offsetstream.tables.lease import read_lease
from offsetstream.tables.ledger import greatest_offsets
from offsetstream.tables.names import (
    ASSIGNMENT_HISTORY,
    ASSIGNMENTS,
    DECODED_LOGS,
    DECODED_TABLES,
    GROUP_HISTORY,
    GROUPS,
    MEMBER_HISTORY,
    OFFSETS_PARTITIONS,
    RECORDS,
    TOPICS,
)
from offsetstream.tables.rows import cell_of, conform, to_python
from offsetstream.tables.schema import TableSchema, load_schema
from offsetstream.tables.small_tables import as_utc, read_rows
from offsetstream.tables.sql import sql_text
from offsetstream.tables.store import EVERY_ROW, Store
from offsetstream.tables.tally import Log, row_hashes
from offsetstream.tables.transaction import NO_BATCH
from offsetstream.verify.difference import RECORDS as OF_RECORDS
from offsetstream.verify.difference import Difference, lasting, row_differences, value_differences
from offsetstream.verify.topic import thinned_below

STATE = "state tables"
_OF = {GROUP_HISTORY: GROUPS, MEMBER_HISTORY: "group_members", ASSIGNMENT_HISTORY: ASSIGNMENTS}
# These depend on the step or its record, give the row's place, or name a topic id that was renamed meanwhile.
_UNCOMPARED = {"record_offset", "record_timestamp", "log_id", "in_coordinator_partition"}
_LAST = (
    "SELECT {columns} FROM (SELECT *, row_number() OVER (PARTITION BY {cell} ORDER BY record_offset DESC) AS nth "
    "FROM rows WHERE {logs}) r WHERE nth = 1 AND NOT ({gone})"
)
_NAMED = 20  # greatest number of differences reported per table and portion
_LOOKED_AT = 1000  # differing rows examined per table and portion
_LOG = ("offsets_partition", "log_id")
_GROUP = (*_LOG, "group_id")
_PLACE = (*_GROUP, "record_offset")
_Tables = dict[str, pa.Table]
_AT_ONCE = 16 << 20  # bytes of JSON per portion
_BYTES_OF_RECORD = 200  # in addition to its JSON


def decoded_differences(tables: Store) -> list[Difference]:
    """Return where the end of the decoded history differs from the state tables.

    In a log that is not decoded from its start (`maintain --fill-history`), only rows of the history are compared.
    """
    return lasting(lambda: _at_the_end(tables))  # a running job writes the tables one after the other


def _at_the_end(tables: Store) -> Iterator[Difference]:
    starts = {
        (row["offsets_partition"], row["log_id"]): row["decoded_from_offset"]
        for row in read_rows(tables.open(DECODED_LOGS))
    }
    # If a batch ended within a step, the state has the step, but it is not decoded yet.
    logs = {
        row["offsets_partition"]: row["log_id"]
        for row in read_rows(tables.open(OFFSETS_PARTITIONS))
        if (row["offsets_partition"], row["log_id"]) in starts and row["next_decoded_offset"] == row["next_offset"]
    }
    whole = {number for number, log_id in logs.items() if starts[number, log_id] == 0}
    for history, state in _OF.items():
        yield from _of_last(tables, history, state, logs, whole)


def _of_last(tables: Store, history: str, state: str, logs: dict[int, int], whole: set[int]) -> Iterator[Difference]:
    schema = load_schema(state)
    columns = [name for name in schema.column_names if name not in _UNCOMPARED]
    where = " OR ".join(f"(offsets_partition = {p} AND log_id = {log_id})" for p, log_id in logs.items()) or "false"
    query = _LAST.format(
        columns=", ".join(columns),
        cell=load_schema(history).cell_sql,
        logs=where,
        gone=load_schema(history).gone,
    )
    ours = map(_without_name, tables.open(history).query(query).read_all().to_pylist())
    # A row without a record belongs to a group that has only offsets.
    stored = tables.open(state).rows(f"({where}) AND record_offset IS NOT NULL", columns)
    theirs = (_without_name(row) for part in stored for row in part.to_pylist())
    alone, pairs = row_differences(history, schema.key, ours, theirs, STATE)
    yield from (each for each in alone if each.in_tables or each.value_of("offsets_partition") in whole)
    yield from value_differences(history, schema.key, pairs, columns, STATE)


def _without_name(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without the topic name if it has an id: the history keeps the name of that time."""
    return row if row.get("topic_id") is None else row | {"topic": None}


@dataclass
class Derivation:
    """The result of a comparison: the differences, and the number of groups that are only partly compared."""

    records: int = 0
    differences: list[Difference] = field(default_factory=list)
    not_compared: int = 0

    def __str__(self) -> str:
        told = f"{self.records:,} group records decoded again and compared with the decoded history"
        if self.not_compared:
            told += f"; {self.not_compared:,} groups compared only up to a load: compaction had removed records"
        return told


def compare_derivation(tables: Store) -> Derivation:
    """Decode the group records again, some groups at a time, and return the differences to the decoded tables."""
    found = _compare(tables)
    if found.differences:  # a job, retention or --fill-history may be running: keep only lasting differences
        again = _compare(tables)
        before = set(found.differences)
        found = replace(again, differences=[each for each in again.differences if each in before])
    return found


def _compare(tables: Store) -> Derivation:
    result = Derivation()
    names = {row["topic_id"]: row["topic"] for row in read_rows(tables.open(TOPICS))}
    books = read_rows(tables.open(OFFSETS_PARTITIONS))
    complete_from = {row["offsets_partition"]: row["history_complete_from"] for row in books}
    for spans, groups in portions(tables, compared_spans(tables)):
        recorded = decoding_rows(_read(tables, RECORDS, STORED, f"({within(spans, UP_TO_END)}) AND {groups}"))
        read = partial(_read, tables, where=f"({within(spans, IN_SPAN)}) AND {groups}")
        written = {table: read(table, load_schema(table).column_names) for table in DECODED_TABLES}
        result.records += recorded.num_rows
        if unreadable := _unreadable(recorded):
            result.differences += unreadable
            continue
        derived = _derived(recorded, written, spans, names)
        ended = _ended_by_loads(recorded, written, derived, complete_from)
        result.not_compared += ended.num_rows
        for table in DECODED_TABLES:
            ours, theirs = (_before(ended, rows[table]) for rows in (written, derived))
            result.differences += _differences(load_schema(table).unsigned, ours, theirs)
    return result


def _read(tables: Store, table: str, columns: Sequence[str], where: str) -> pa.Table:
    query = f"SELECT {', '.join(columns)} FROM rows WHERE {where}"  # noqa: S608 - our own SQL
    found = tables.open(table).query(query).read_all()
    return found.cast(pa.schema([load_schema(table).arrow.field(name) for name in columns]))


def _unreadable(recorded: pa.Table) -> list[Difference]:
    """Return the first records with JSON that is not Kafka's, so that the job cannot have written them."""
    found = []
    for row in to_python(recorded):
        try:
            if row["value_json"] is not None:
                cell_of(row)
        except (ValueError, KeyError, TypeError):
            place = tuple(row[name] for name in _PLACE)
            found.append(Difference(RECORDS, _PLACE, place, "value_json", row["value_json"], "none such", OF_RECORDS))
            if len(found) == _NAMED:
                break
    return found


def _derived(recorded: pa.Table, written: _Tables, spans: Spans, names: Mapping[str, str]) -> _Tables:
    """Decode the records again. A step ends where the tables have a row, as it did for the job.

    A batch, or a killed job, may have ended there.
    """
    ends = defaultdict[Log, set[int]](set)
    for rows in written.values():
        places = rows.select([*_LOG, "record_offset"]).group_by([*_LOG, "record_offset"]).aggregate([])
        for place in places.to_pylist():
            ends[place["offsets_partition"], place["log_id"]].add(place["record_offset"])
    spans = {log: replace(span, steps_end_at=frozenset(ends[log])) for log, span in spans.items()}
    return changes_on_driver(recorded, Decoding(spans, {table: {} for table in DECODED_TABLES}, NO_BATCH), names)


def _ended_by_loads(
    recorded: pa.Table, written: _Tables, derived: _Tables, complete_from: Mapping[int, datetime | None]
) -> pa.Table:
    """Return the groups whose records compaction had removed before a load, and the offset where that shows.

    If such a load did not find a group in the log, the group ended with its last offset, and no record explains that,
    or the group's own record there, which was the load's last one, led to something else. It is also unknown which
    cells were removed. This happens only before the history is complete.
    """
    # The batch id of every load is that of no batch.
    loaded = [rows.filter(pc.equal(rows["batch_id"], NO_BATCH.batch_id)) for rows in written.values()]
    places = pa.concat_tables(rows.select([*_PLACE, "record_timestamp"]) for rows in loaded)
    places = places.group_by(list(_PLACE)).aggregate([("record_timestamp", "min")])
    alone = places.join(recorded.select(_PLACE), list(_PLACE), join_type="left anti")
    last = places.group_by(list(_LOG)).aggregate([("record_offset", "max")])
    last = last.rename_columns([*_LOG, "record_offset"])
    other = places.join(last, [*_LOG, "record_offset"], join_type="left semi")
    other = other.join(_that_differ(other.select(_PLACE), written, derived), list(_PLACE), join_type="left semi")
    unexplained = pa.concat_tables([alone, other.select(alone.column_names)])
    ends = {
        (row["offsets_partition"], row["log_id"], row["record_offset"])
        for row in unexplained.to_pylist()
        if _is_before(row["record_timestamp_min"], complete_from.get(row["offsets_partition"]))
    }
    near = places.filter(pc.is_in(places["record_offset"], pa.array([end[-1] for end in ends], pa.int64())))
    ended: dict[tuple[int, int, str], int] = {}
    for *log, group_id, offset, _ in zip(*(near[name].to_pylist() for name in near.column_names), strict=True):
        if (*log, offset) in ends:
            group = (*log, group_id)
            ended[group] = min(offset, ended.get(group, offset))
    rows = [dict(zip(_GROUP, group, strict=True)) | {"ended_at": offset} for group, offset in ended.items()]
    types = [(name, places.schema.field(name).type) for name in _GROUP]
    return pa.Table.from_pylist(rows, schema=pa.schema([*types, ("ended_at", pa.int64())]))


def _that_differ(places: pa.Table, written: _Tables, derived: _Tables) -> pa.Table:
    """Return those of a few places at which the rows of both sides differ."""
    found = []
    for table in DECODED_TABLES:
        schema = load_schema(table).unsigned
        there = (rows[table].join(places, list(_PLACE), join_type="left semi") for rows in (written, derived))
        found += [rows.select(_PLACE) for rows in _odd(schema, *_comparable(schema, *there))]
    return pa.concat_tables(found)


def _comparable(schema: TableSchema, *tables: pa.Table) -> list[pa.Table]:
    return [_unnamed(conform(rows, schema)) for rows in tables]


def _is_before(at: datetime | None, complete_from: datetime | None) -> bool:
    return at is None or complete_from is None or as_utc(at) <= as_utc(complete_from)


def _before(ended: pa.Table, rows: pa.Table) -> pa.Table:
    if not ended.num_rows:
        return rows
    joined = rows.join(ended, list(_GROUP), join_type="left outer")
    is_before = pc.or_kleene(pc.is_null(joined["ended_at"]), pc.less(joined["record_offset"], joined["ended_at"]))
    return joined.filter(is_before).select(rows.column_names)


def _differences(schema: TableSchema, ours: pa.Table, theirs: pa.Table) -> list[Difference]:
    """Return the first differences in log order. Most rows are equal."""
    ours, theirs = _odd(schema, *_comparable(schema, ours, theirs))
    offsets = sorted(offset for rows in (ours, theirs) for offset in rows["record_offset"].to_pylist())
    if not offsets:
        return []
    last = offsets[min(_LOOKED_AT, len(offsets)) - 1]
    ours, theirs = (rows.filter(pc.less_equal(rows["record_offset"], last)).to_pylist() for rows in (ours, theirs))
    alone, pairs = row_differences(schema.name, schema.row_key, ours, theirs, OF_RECORDS)
    found = [*alone, *value_differences(schema.name, schema.row_key, pairs, schema.column_names)]
    return sorted(found, key=lambda each: (each.value_of("record_offset"), str(each)))[:_NAMED]


def _odd(schema: TableSchema, ours: pa.Table, theirs: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the rows, by hash, that the other side lacks or has a different number of times."""
    hashes = np.concatenate([row_hashes(rows, schema) for rows in (ours, theirs)])
    _, kinds = np.unique(hashes, return_inverse=True)
    own, other = kinds[: len(ours)], kinds[len(ours) :]
    count = int(kinds.max(initial=-1)) + 1
    is_odd = np.bincount(own, minlength=count) != np.bincount(other, minlength=count)
    return ours.filter(pa.array(is_odd[own])), theirs.filter(pa.array(is_odd[other]))


def _unnamed(rows: pa.Table) -> pa.Table:
    """Return rows without the topic name if they have an id: the history keeps the name of that time."""
    if "topic_id" not in rows.column_names:
        return rows
    is_named = pc.is_null(rows["topic_id"])
    topics = pc.if_else(is_named, rows["topic"], pa.scalar(None, pa.string()))
    return rows.set_column(rows.column_names.index("topic"), "topic", topics)


def compared_spans(tables: Store) -> Spans:
    """Return the offsets to compare in each log."""
    books = {row["offsets_partition"]: row for row in read_rows(tables.open(OFFSETS_PARTITIONS))}
    starts = {
        (row["offsets_partition"], row["log_id"]): row["decoded_from_offset"]
        for row in read_rows(tables.open(DECODED_LOGS))
    }
    greatest = [greatest_offsets(tables, table) for table in DECODED_TABLES]
    whole = _whole_from(tables, starts)
    found = {}
    for log, start in sorted(starts.items()):
        book = books.get(log[0])
        if book is not None and book["log_id"] == log[1]:
            end = book["next_decoded_offset"] or 0
        else:
            end = 1 + max(of_table.get(log, -1) for of_table in greatest)
        found[log] = Span(max(start, whole.get(log, 0)), end)
    return {log: span for log, span in found.items() if span.start < span.end}


def _whole_from(tables: Store, logs: Mapping[Log, int]) -> dict[Log, int]:
    """Return, for each log, the offset below which retention may have deleted records."""
    lease = read_lease(tables)
    if lease is None or lease.history_kept_from is None:
        return {}
    kept_from, records = lease.history_kept_from.date(), tables.open(RECORDS)
    found: dict[Log, int] = {}
    for log_id in {log[1] for log in logs}:
        own = {partition: log_id for partition, of in logs if of == log_id}
        below = thinned_below(records, own, kept_from)
        found |= {(partition, log_id): offset for partition, offset in below.items()}
    return found


def portions(tables: Store, spans: Spans) -> Iterator[tuple[Spans, str]]:
    """Yield several logs that fit into memory together, or one log with a condition for some of its groups."""
    some: dict[Log, Span] = {}
    total, sizes = 0, {tuple(row[:2]): row[-1] for row in _sizes(tables, spans, "offsets_partition, log_id")}
    for log, span in spans.items():
        size = sizes.get(log, 0)
        if size > _AT_ONCE:
            yield from (({log: span}, groups) for groups in _ranges(tables, log, span))
            continue
        if some and total + size > _AT_ONCE:
            yield some, EVERY_ROW
            some, total = {}, 0
        some[log] = span
        total += size
    if some:
        yield some, EVERY_ROW


def _ranges(tables: Store, log: Log, span: Span) -> Iterator[str]:
    """Yield conditions that split a log's groups into disjoint ranges of ids."""
    firsts, total = [], 0
    for group_id, size in _sizes(tables, {log: span}, "group_id"):
        if total and total + size > _AT_ONCE:
            firsts.append(sql_text(group_id))
            total = 0
        total += size
    for first, after in pairwise([None, *firsts, None]):
        bounds = [f"group_id >= {first}" if first else "", f"group_id < {after}" if after else ""]
        yield " AND ".join(filter(None, bounds)) or EVERY_ROW


def _sizes(tables: Store, spans: Spans, by: str) -> Iterator[tuple[Any, ...]]:
    json = f"octet_length(key_json) + coalesce(octet_length(value_json), 0) + {_BYTES_OF_RECORD}"
    query = f"SELECT {by}, sum({json}) AS size FROM rows WHERE {within(spans, UP_TO_END)} GROUP BY {by} ORDER BY {by}"  # noqa: S608 - our own SQL
    for batch in tables.open(RECORDS).query(query):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
