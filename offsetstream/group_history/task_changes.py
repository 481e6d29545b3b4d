"""Write the decoded history from Spark tasks, for inputs that are too large for the driver.

Each task has whole groups. It does with them what the driver would do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from offsetstream.coordinator.reduction import GROUP
from offsetstream.group_history.decoding import (
    BEFORE_SPAN,
    COLUMNS,
    IN_SPAN,
    ORDER,
    Decoding,
    Spans,
    changes_of,
    within,
)
from offsetstream.tables.names import DECODED_TABLES, GROUP_CELLS, RECORDS
from offsetstream.tables.tally import LOG
from offsetstream.tables.task_rows import TaskRows
from offsetstream.tables.write import TableWriter

_CELL = (*LOG, "group_id", "key_type", "key_json")


class TaskChangeWriter:
    """Does what `DriverChangeWriter` does. It finds the records in the history, where they were just written."""

    def __init__(self, writer: TableWriter, topic_names: Mapping[str, str]) -> None:
        self._writer = writer
        self._topic_names = topic_names

    def append_batch(self, decoding: Decoding) -> None:
        """Append the changes by the records of a batch."""
        history = self._writer.rows(RECORDS)
        rows = recorded(history, decoding.spans)
        groups = rows.where(within(decoding.of(is_stored=False), IN_SPAN)).select(*GROUP).distinct()
        present = self._writer.rows(GROUP_CELLS).join(groups, [*GROUP], "left_semi")
        self._append([rows, _rows(present), _last_before(history, decoding.of(is_stored=True))], decoding)

    def append_load(self, cells: DataFrame, decoding: Decoding) -> None:
        """Append the changes by the records of loaded partitions. `cells`: those that are the state after."""
        history, stored = self._writer.rows(RECORDS), decoding.of(is_stored=True)
        rows = [recorded(history, decoding.spans), _last_before(history, stored)]
        if stored:
            log_id = F.create_map(*(F.lit(number) for log in stored for number in log))[F.col("offsets_partition")]
            final = cells.withColumn("log_id", log_id).where(~F.col("is_tombstone") & F.col("log_id").isNotNull())
            rows.append(_rows(final, is_final=True))
        self._append(rows, decoding)

    def _append(self, rows: list[DataFrame], decoding: Decoding) -> None:
        with changes_in_tasks(self._writer, rows, decoding, self._topic_names) as found:
            self._writer.append(found, decoding.batch)


def recorded(records: DataFrame, spans: Spans) -> DataFrame:
    """Return the rows of `group_records` in the spans, with `COLUMNS`."""
    return _rows(records.where(within(spans, IN_SPAN)))


def _last_before(records: DataFrame, spans: Spans) -> DataFrame:
    """Return the last row of each cell before the spans, without tombstones."""
    rest = [name for name in (*COLUMNS, "is_tombstone") if name not in (*_CELL, "is_final")]
    found = records.where(within(spans, BEFORE_SPAN)).groupBy(*_CELL)
    last = found.agg(F.max_by(F.struct(*rest), F.col("record_offset")).alias("last")).select(*_CELL, "last.*")
    return _rows(last.where(~F.col("is_tombstone")))


def _rows(records: DataFrame, *, is_final: bool = False) -> DataFrame:
    """Return records or cells with `COLUMNS`. `is_final`: they are the state at the end of a span."""
    return records.withColumn("is_final", F.lit(is_final)).select(*COLUMNS)


@contextmanager
def changes_in_tasks(
    writer: TableWriter, rows: Iterable[DataFrame], decoding: Decoding, topic_names: Mapping[str, str]
) -> Iterator[dict[str, TaskRows]]:
    """Yield the changes in the rows, as rows of the `DECODED_TABLES`; see `decoding.decoded_changes`."""
    united = reduce(DataFrame.unionByName, rows)
    # All rows of a group go to one task, in log order.
    ordered = united.repartition(*LOG, "group_id").sortWithinPartitions(*ORDER)
    work = partial(changes_of, decoding=decoding, topic_names=dict(topic_names))
    with writer.computed(ordered, work, DECODED_TABLES, decoding.batch) as found:
        yield found
