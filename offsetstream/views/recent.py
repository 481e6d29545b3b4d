"""Select the samples that views about now need: of partitions with waiting messages, since the earliest needed time.

A month of samples has millions of rows, but `time_lag` and `group_status` need few of them. Both read `end_intervals`,
which is built here from these rows only. The answers are the same as with all rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from offsetstream.views.files import load_view, needed

if TYPE_CHECKING:
    from offsetstream.views.reader import ViewReader

RECENT_VIEWS = frozenset({"time_lag", "group_status_partitions"})
# Their rows are stored: other views read them several times, and DuckDB would plan them each time.
STORED_VIEWS = frozenset({"freshness", "partition_ends", "waiting_commits"})
_BY_COMMITS = "group_status_partitions"  # needs the group's last commits, which are slow to find
_LIMITS = ("intervals", "window_seconds", "max_time_lag_seconds")
_MOST = 999_999  # upper limit of DuckDB's arg_max
_NO_COMMITS = "(SELECT NULL AS cell, NULL AS record_timestamp, NULL AS record_offset WHERE false)"
_RECENT, _OFFSETS, _FEWER = "recent end_intervals", "recent end_offsets", " by offset"
_RING, _WINDOW_SECONDS, _SAMPLE_SECONDS = 10, 300, 10  # as in group_status_partitions.sql
# For each partition: the lowest next offset to read, and the earliest time at which a status needs the end offset: that
# of its last commits, of the commit that was current when the window started, or of the first end in the ring. The last
# sample at or below that offset and the last one at or before that time are the first that are needed.
_QUERY = """
WITH rings AS (
  SELECT cell, list_min(arg_max(record_timestamp, record_offset, {intervals})) AS ring_at,
         max(record_timestamp) FILTER (record_timestamp <= as_of - to_seconds({seconds})) AS before_at
  FROM {commits} JOIN (SELECT cell, as_of FROM waiting_cells) USING (cell) GROUP BY cell
), needs AS (
  SELECT topic, partition, any_value(topic_id) AS topic_id, min(next_to_read) AS next_to_read,
         least(min(r.ring_at), min(r.before_at), min(w.sampled_at) - to_seconds({ring_seconds}),
               min(w.as_of) - to_seconds({seconds})) AS since
  FROM waiting_cells AS w LEFT JOIN rings AS r USING (cell)
  GROUP BY topic, partition
), begins AS (
  SELECT topic, partition, max(sampled_at) FILTER (high_watermark <= next_to_read) AS by_offset,
         max(sampled_at) FILTER (sampled_at <= since) AS by_time
  FROM end_offsets AS e JOIN needs AS n USING (topic, partition) WHERE e.topic_id IS NOT DISTINCT FROM n.topic_id
  GROUP BY topic, partition
)
SELECT e.* FROM end_offsets AS e JOIN needs AS n USING (topic, partition) LEFT JOIN begins USING (topic, partition)
WHERE e.topic_id IS NOT DISTINCT FROM n.topic_id
  AND (by_offset IS NULL OR by_time IS NULL OR sampled_at >= least(by_offset, by_time))"""


def over_recent(reader: ViewReader, view: str, query: str) -> str:
    """Read the samples that a view about now needs and return its query over them. Raises what ViewReader raises."""
    by_commits = view == _BY_COMMITS or reader.has(_RECENT)
    suffix = "" if by_commits else _FEWER
    if not reader.has(_RECENT + suffix):
        _define_recent(reader, suffix, by_commits=by_commits)
    return query.replace("end_intervals", f'"{_RECENT}{suffix}"')


def _define_recent(reader: ViewReader, suffix: str, *, by_commits: bool) -> None:
    for view in needed("waiting_cells"):
        reader.define_view(view, None)
    for table in ("thresholds", "end_offsets"):
        reader.define_table(table)
    largest = [f"ceil(max(nullif({name}::DOUBLE, 'NaN'::DOUBLE)))::BIGINT" for name in _LIMITS]
    limits = f"SELECT {', '.join(largest)} FROM thresholds"  # noqa: S608 - the names are ours
    intervals, window, time_lag = (each or 0 for each in reader.connection.execute(limits).fetchall()[0])
    intervals = min(max(intervals, _RING), _MOST)
    values = {
        "intervals": intervals,
        "ring_seconds": (intervals - 1) * _SAMPLE_SECONDS,
        "seconds": max(window, time_lag, _WINDOW_SECONDS),
        "commits": "waiting_commits" if by_commits else _NO_COMMITS,
    }
    reader.define(_OFFSETS + suffix, _QUERY.format(**values), kept=True)
    ends = load_view("end_intervals").duckdb_sql.replace("end_offsets", f'"{_OFFSETS}{suffix}"')
    reader.define(_RECENT + suffix, ends, kept=True)
