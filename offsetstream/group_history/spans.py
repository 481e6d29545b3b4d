"""Which records are to be decoded: a span of offsets of each log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from offsetstream.tables.tally import Log
from offsetstream.tables.transaction import BatchId


@dataclass(frozen=True)
class Span:
    """The offsets of a log from `start` to `end` (exclusive), of which group records become changes.

    `is_stored`: the history of records tells what was before, and has the records; else what was before is told by the
    state tables, or there was nothing. `steps_end_at`: offsets at which a step ends whatever follows. `is_closed`: what
    there is of the groups at the end is known, so that who went without a record, as compaction took it, goes then; at
    `closed_at_ms`, the time of the log's newest record, in milliseconds since 1970.
    """

    start: int
    end: int
    is_stored: bool = True
    steps_end_at: frozenset[int] = frozenset()
    is_closed: bool = False
    closed_at_ms: int | None = None


Spans = Mapping[Log, Span]


def of_spans(spans: Spans, *, is_stored: bool) -> Spans:
    """Return the spans whose records the history of records is asked for, or the others."""
    return {log: span for log, span in spans.items() if span.is_stored is is_stored}


@dataclass(frozen=True)
class Decoding:
    """What is to be decoded, and appended as a batch or a load.

    Nothing is appended of an offset of at most that which `written` has of the table and the offsets partition.
    """

    spans: Spans
    written: Mapping[str, Mapping[int, int]]
    batch: BatchId

    def of(self, *, is_stored: bool) -> Spans:
        """Return the spans whose records the history of records is asked for, or the others."""
        return of_spans(self.spans, is_stored=is_stored)


def within(spans: Spans, offsets: str) -> str:
    """Return the SQL condition of rows of these logs whose offset fulfils `offsets`, of {start} and {end}."""
    of_logs = (
        f"(offsets_partition = {partition} AND log_id = {log_id} AND {offsets.format(start=span.start, end=span.end)})"
        for (partition, log_id), span in spans.items()
    )
    return " OR ".join(of_logs) or "false"


IN_SPAN = "record_offset >= {start} AND record_offset < {end}"
BEFORE_SPAN = "record_offset < {start}"
UP_TO_END = "record_offset < {end}"
