"""Which records to decode: a span of offsets for each log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from offsetstream.tables.tally import Log
from offsetstream.tables.transaction import BatchId


@dataclass(frozen=True)
class Span:
    """The offsets of a log from `start` to `end` (exclusive), of which the group records are decoded.

    - `is_stored`: whether the records, and the state before them, come from the history of records. Otherwise the state
      before comes from the state tables, or is empty.
    - `steps_end_at`: offsets at which a step ends, whatever follows.
    - `is_closed`: whether the state at the end is known. A group or member whose tombstone was compacted then ends at
      `closed_at_ms`: the time of the log's newest record, in milliseconds since 1970.
    """

    start: int
    end: int
    is_stored: bool = True
    steps_end_at: frozenset[int] = frozenset()
    is_closed: bool = False
    closed_at_ms: int | None = None


Spans = Mapping[Log, Span]


def spans_where(spans: Spans, *, is_stored: bool) -> Spans:
    """Return the spans with this `is_stored`."""
    return {log: span for log, span in spans.items() if span.is_stored is is_stored}


@dataclass(frozen=True)
class Decoding:
    """What to decode, and the batch or load under which it is appended.

    `written`: by table and offsets partition, the offset up to which nothing is appended.
    """

    spans: Spans
    written: Mapping[str, Mapping[int, int]]
    batch: BatchId

    def of(self, *, is_stored: bool) -> Spans:
        """Return the spans with this `is_stored`."""
        return spans_where(self.spans, is_stored=is_stored)


def within(spans: Spans, offsets: str) -> str:
    """Return the SQL condition for rows of these logs. `offsets`: a condition with {start} and {end}."""
    conditions = (
        f"(offsets_partition = {partition} AND log_id = {log_id} AND {offsets.format(start=span.start, end=span.end)})"
        for (partition, log_id), span in spans.items()
    )
    return " OR ".join(conditions) or "false"


IN_SPAN = "record_offset >= {start} AND record_offset < {end}"
BEFORE_SPAN = "record_offset < {start}"
UP_TO_END = "record_offset < {end}"
