"""Which records are to be decoded: a span of offsets of each log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from offsetstream.tables.tally import Log


@dataclass(frozen=True)
class Span:
    """The offsets of a log from `start` to `end` (exclusive), of which group records become changes.

    `steps_end_at`: offsets at which a step ends whatever follows. `is_closed`: what the state of the groups is at the
    end is known, so that who went without a record, as compaction took it, goes then; at `closed_at_ms`, the time of
    the log's newest record, in milliseconds since 1970.
    """

    start: int
    end: int
    steps_end_at: frozenset[int] = frozenset()
    is_closed: bool = False
    closed_at_ms: int | None = None


Spans = Mapping[Log, Span]


def within(spans: Spans, offsets: str) -> str:
    """Return the SQL condition of rows of these logs whose offset fulfils `offsets`, of {start} and {end}."""
    of_logs = (
        f"(offsets_partition = {partition} AND log_id = {log_id} AND {offsets.format(start=span.start, end=span.end)})"
        for (partition, log_id), span in spans.items()
    )
    return " OR ".join(of_logs) or "false"


IN_SPAN = "record_offset >= {start} AND record_offset < {end}"
BEFORE_SPAN = "record_offset < {start}"
