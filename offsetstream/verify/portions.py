"""Choose the part of the decoded history that can be compared with the records, in portions that fit into memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from offsetstream.group_history.spans import UP_TO_END, Span, Spans, within
from offsetstream.tables.lease import read_lease
from offsetstream.tables.ledger import greatest_offsets
from offsetstream.tables.names import DECODED_LOGS, DECODED_TABLES, OFFSETS_PARTITIONS, RECORDS
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.sql import sql_text
from offsetstream.tables.store import EVERY_ROW, Store
from offsetstream.tables.tally import Log
from offsetstream.verify.topic import thinned_below

_AT_ONCE = 16 << 20  # bytes of JSON per portion
_BYTES_OF_RECORD = 200  # in addition to its JSON


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
