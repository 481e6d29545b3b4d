"""Steps that the end of a batch may have cut: their records wait until the rest is read.

A step is the records of one group that the coordinator appended together.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offsetstream.group_history.spans import IN_SPAN, Span, Spans, within
from offsetstream.tables.names import RECORDS
from offsetstream.tables.schema import load_schema
from offsetstream.tables.store import Store
from offsetstream.tables.tally import Log

# The most records of one append: a batch of Kafka has up to 1 MiB (max.message.bytes), a record at least 60 bytes.
_LONGEST = 20_000
_LOG = ("offsets_partition", "log_id")
_SCHEMA = pa.schema(
    [load_schema(RECORDS).arrow.field(name) for name in (*_LOG, "record_offset", "record_timestamp", "group_id")]
)


def stored_tails(tables: Store, spans: Spans) -> pa.Table:
    """Return the last records of each span from the history of records: as many as a step can have."""
    if not spans:
        return _SCHEMA.empty_table()
    tails = {log: replace(span, start=max(span.start, span.end - _LONGEST)) for log, span in spans.items()}
    query = f"SELECT {', '.join(_SCHEMA.names)} FROM rows WHERE {within(tails, IN_SPAN)}"  # noqa: S608 - our own SQL
    return tables.open(RECORDS).query(query).read_all()


def until_complete_steps(spans: Spans, *records: pa.Table) -> dict[Log, Span]:
    """Return the spans without their last step, if that step reaches the end of the span.

    `records`: together, the group records of the spans in any order, or only the last of them.
    """
    last_steps = _last_steps(pa.concat_tables([rows.select(_SCHEMA.names).cast(_SCHEMA) for rows in records]))
    return {log: replace(span, end=_end_of_complete_steps(span, last_steps.get(log))) for log, span in spans.items()}


def _end_of_complete_steps(span: Span, last_step: tuple[int, int] | None) -> int:
    return span.end if last_step is None or last_step[1] != span.end - 1 else last_step[0]


def _last_steps(records: pa.Table) -> dict[Log, tuple[int, int]]:
    """Return the first and the last offset of the last step of each log: adjacent records of one group and one time."""
    if not records.num_rows:
        return {}
    rows = records.sort_by([(name, "ascending") for name in (*_LOG, "record_offset")])
    partitions, logs, offsets = (rows[name].to_numpy() for name in (*_LOG, "record_offset"))
    starts_log = _changes(partitions) | _changes(logs)
    groups = rows["group_id"].combine_chunks().dictionary_encode().indices
    equal = [values.cast(pa.int64()).fill_null(-1).to_numpy() for values in (rows["record_timestamp"], groups)]
    starts_step = np.logical_or.reduce([starts_log, np.diff(offsets, prepend=offsets[0]) != 1, *map(_changes, equal)])
    first = offsets[np.maximum.accumulate(np.where(starts_step, np.arange(len(starts_step)), 0))]
    ends = np.append(starts_log[1:], True)
    return {
        (partition, log): (start, end)
        for partition, log, start, end in zip(
            *(values[ends].tolist() for values in (partitions, logs, first, offsets)), strict=True
        )
    }


def _changes(values: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return for each value whether it differs from the one before."""
    return np.append([True], values[1:] != values[:-1])
