"""Steps that the end of a batch may have cut in two: their records wait until the rest of them is read."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from operator import itemgetter

from offsetstream.group_history.spans import IN_SPAN, Span, Spans, within
from offsetstream.tables.names import RECORDS
from offsetstream.tables.store import Store
from offsetstream.tables.tally import Log

# No append has more records than fit into a batch of Kafka's (max.message.bytes, 1 MiB, and 60 bytes at least each).
_LONGEST = 20_000
_COLUMNS = ("offsets_partition", "log_id", "record_offset", "record_timestamp", "group_id")


def whole_until(tables: Store, spans: Spans) -> dict[Log, Span]:
    """Return the spans without the last step of each, if it goes up to the span's end; a step of their own they keep.

    The records are read from the history of records, which must have them.
    """
    tails = {log: replace(span, start=max(span.start, span.end - _LONGEST)) for log, span in spans.items()}
    query = f"SELECT {', '.join(_COLUMNS)} FROM rows WHERE {within(tails, IN_SPAN)}"  # noqa: S608 - our own SQL
    found = tables.open(RECORDS).query(query).read_all().to_pylist()
    places: dict[Log, list[tuple[int, object]]] = {log: [] for log in spans}
    for row in sorted(found, key=itemgetter("record_offset"), reverse=True):
        step = (row["group_id"], row["record_timestamp"])
        places[row["offsets_partition"], row["log_id"]].append((row["record_offset"], step))
    return {log: replace(span, end=_whole_end(span, places[log])) for log, span in spans.items()}


def _whole_end(span: Span, places: list[tuple[int, object]]) -> int:
    """Return where the last step begins, of which the last record is the span's last offset; else the span's end.

    `places` are the records from the last one back, with what those of one step have in common.
    """
    if not places or places[0][0] != span.end - 1:
        return span.end
    for (offset, step), (earlier, other) in pairwise(places):
        if earlier != offset - 1 or other != step:
            return offset
    return places[-1][0]
