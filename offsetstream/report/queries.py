"""The data of the page as plain rows, reduced by the queries, so that a day of many groups stays small."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import duckdb

from offsetstream.errors import TablesError, first_line
from offsetstream.tables.lookup import fetch_rows
from offsetstream.tables.store import Store
from offsetstream.views.instant import InstantReader
from offsetstream.views.reader import ViewReader, instant_sql
from offsetstream.views.verdicts import NOT_LOOKED

Row = dict[str, Any]
# Queries over views and tables. $from and $to are the period, $step the seconds of a bucket, $pixel those of a pixel.
# $not_looked is a cause that is shown only once.
_QUERIES = {
    "status": """
        SELECT group_id, group_type, group_state, member_count, group_status.level, verdict, total_lag,
               time_lag_seconds, is_at_least,
               CASE WHEN cause <> $not_looked OR count(*) OVER (PARTITION BY cause) = 1 OR cause IS NULL
                    THEN verdict_reason ELSE '' END AS reason,
               cause, verdict_topic AS topic, verdict_partition AS partition,
               group_status.level IN ('WARN', 'ERR') AS is_bad
        FROM group_status LEFT JOIN (
          SELECT group_id, max(time_lag_seconds) AS time_lag_seconds, bool_or(method = 'at least') AS is_at_least
          FROM time_lag GROUP BY group_id
        ) USING (group_id) JOIN verdicts USING (verdict)
        ORDER BY rank DESC, total_lag DESC NULLS LAST, group_id""",
    # One row for everything that one commit request or reset moved.
    "audit": """
        SELECT record_timestamp AS "at", group_id, topic, finding, moved_to, group_state, member_count,
               list(partition ORDER BY partition) AS partitions, min(previous_offset) AS previous_least,
               max(previous_offset) AS previous_most, min(committed_offset) AS offset_least,
               max(committed_offset) AS offset_most, any_value(owner_client_id) AS owner_client_id,
               any_value(owner_host) AS owner_host, any_value(metadata) AS metadata
        FROM commit_audit WHERE record_timestamp >= $from AND record_timestamp < $to
        GROUP BY ALL ORDER BY "at" DESC, group_id, topic LIMIT 1001""",
    # Between two points nothing changed, unless the offset was deleted: so each change of a partition changes the sum.
    "lag": """
        WITH points AS (
          SELECT group_id, topic, partition, minute, lag FROM lag_history WHERE minute < $to
          UNION ALL
          SELECT group_id, topic, partition, date_trunc('minute', greatest(record_timestamp, $from)) AS minute, NULL
          FROM offset_commits WHERE record_timestamp < $to
          GROUP BY offsets_partition, group_id, topic, partition, minute
          HAVING arg_max(is_tombstone, row(log_id, record_offset))
        ), changes AS (
          SELECT group_id, minute, coalesce(lag, 0) - coalesce(lag(lag) OVER ordered, 0) AS change FROM points
          WINDOW ordered AS (PARTITION BY group_id, topic, partition ORDER BY minute)
          QUALIFY lag IS NOT NULL OR lag(lag) OVER ordered IS NOT NULL
        ), sums AS (
          SELECT group_id, minute, sum(sum(change)) OVER (PARTITION BY group_id ORDER BY minute) AS lag
          FROM changes GROUP BY group_id, minute
        ), buckets AS (
          SELECT group_id, greatest(0, floor(epoch(minute - $from) / $step))::INT AS bucket, max(lag) AS most,
                 arg_max(lag, minute) AS last
          FROM sums GROUP BY ALL
        ), every AS (
          SELECT group_id, unnest(range(first, $buckets::INT)) AS bucket
          FROM (SELECT group_id, min(bucket) AS first FROM buckets GROUP BY group_id)
        ), filled AS (
          SELECT e.group_id, e.bucket, greatest(most, last_value(last IGNORE NULLS) OVER (
            PARTITION BY e.group_id ORDER BY e.bucket ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS lag
          FROM every AS e LEFT JOIN buckets AS b ON b.group_id = e.group_id AND b.bucket = e.bucket
        )
        SELECT group_id, (bucket * $step)::BIGINT AS seconds, lag::BIGINT AS lag FROM filled
        WINDOW ordered AS (PARTITION BY group_id ORDER BY bucket)
        QUALIFY lag IS DISTINCT FROM lag(lag) OVER ordered
        ORDER BY group_id, bucket""",
    "rebalances": """
        SELECT group_id, (floor(epoch(started_at - $from) / $pixel) * $pixel)::BIGINT AS seconds,
               count(*) AS rebalances, coalesce(sum(members_left), 0)::BIGINT AS members_left,
               coalesce(sum(members_joined), 0)::BIGINT AS members_joined
        FROM rebalances WHERE started_at >= $from AND started_at < $to GROUP BY ALL ORDER BY group_id, seconds""",
    # Merges consecutive periods of an owner; drops periods narrower than a quarter of a pixel.
    "owners": """
        WITH stretches AS (
          SELECT group_id, coalesce(topic, subtopology_id, topic_id) AS topic, partition, member_id,
                 coalesce(group_instance_id, client_id, member_id) AS owner,
                 greatest(assigned_at, $from) AS since, least(coalesce(revoked_at, $to), $to) AS until
          FROM assignment_intervals
          WHERE kind IN ('assigned', 'active') AND assigned_at < $to AND coalesce(revoked_at, $to) > $from
        ), named AS (
          SELECT * REPLACE (CASE WHEN count(DISTINCT member_id) OVER (PARTITION BY group_id, owner, since) > 1
            THEN owner || ' ' || right(member_id, 6) ELSE owner END AS owner) FROM stretches
        ), marked AS (
          SELECT *, coalesce(since > lag(until) OVER ordered OR owner <> lag(owner) OVER ordered, true)::INT AS begins
          FROM named WINDOW ordered AS (PARTITION BY group_id, topic, partition ORDER BY since, until)
        ), numbered AS (
          SELECT *, sum(begins) OVER (PARTITION BY group_id, topic, partition ORDER BY since, until
                                      ROWS UNBOUNDED PRECEDING) AS stretch
          FROM marked
        )
        SELECT group_id, topic, partition, owner, round(epoch(min(since) - $from), 1) AS seconds,
               round(epoch(max(until) - $from), 1) AS until
        FROM numbered GROUP BY group_id, topic, partition, owner, stretch
        HAVING epoch(max(until) - min(since)) >= $pixel / 4 ORDER BY ALL""",
    "commits": """
        SELECT group_id, (greatest(0, floor(epoch(minute - $from) / $step)) * $step)::BIGINT AS seconds,
               sum(commits)::BIGINT AS commits
        FROM commit_rate WHERE minute < $to GROUP BY ALL ORDER BY group_id, seconds""",
    "coordinators": """
        SELECT p.offsets_partition, p.coordinator_id, coalesce(h.records, 0) AS records, h.busiest_group
        FROM offsets_partitions AS p LEFT JOIN hot_offsets_partitions AS h USING (offsets_partition)
        ORDER BY p.offsets_partition""",
    "moves": """
        SELECT event_at AS "at", event, offsets_partition, previous_coordinator_id, coordinator_id, groups_count
        FROM coordinator_moves WHERE event_at >= $from AND event_at < $to ORDER BY event_at DESC LIMIT 301""",
    "facts": """
        SELECT (SELECT any_value(cluster_id) FROM cluster) AS cluster_id,
               (SELECT max(history_complete_from) FROM offsets_partitions WHERE load_state = 'OWNED') AS complete_from,
               EXISTS (FROM assignment_history)
                 OR EXISTS (FROM offsets_partitions WHERE next_decoded_offset IS NOT NULL) AS is_decoded""",
}
_READS = {
    "status": ("group_status", "time_lag", "verdicts"),
    "audit": ("commit_audit",),
    "lag": ("lag_history",),
    "rebalances": ("rebalances",),
    "owners": ("assignment_intervals",),
    "commits": ("commit_rate",),
    "coordinators": ("hot_offsets_partitions",),
    "moves": ("coordinator_moves",),
    "facts": (),
}
_TABLES = ("cluster", "offsets_partitions", "assignment_history")
_BUCKETS, _PIXELS = 120, 900
_STEPS = (60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)


@dataclass(frozen=True)
class Period:
    """The period of the page: from `since` to `until` (exclusive)."""

    since: datetime
    until: datetime

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return (self.until - self.since).total_seconds()

    @property
    def step(self) -> int:
        """Seconds of a bucket: full minutes, so that there are at most about 120 buckets."""
        wanted = self.seconds / _BUCKETS
        return next((step for step in _STEPS if step >= wanted), int(wanted // 86_400 + 1) * 86_400)


@dataclass
class Found:
    """The rows of each query, by name."""

    period: Period
    groups: Collection[str]
    rows: Mapping[str, list[Row]] = field(default_factory=dict)

    def by_group(self, name: str) -> dict[str, list[Row]]:
        """Return the rows of a query by group."""
        found: dict[str, list[Row]] = {}
        for row in self.rows[name]:
            found.setdefault(row["group_id"], []).append(row)
        return found


def find(store: Store, period: Period, groups: Collection[str] = (), *, is_past: bool = False) -> Found:
    """Run all queries for a period, for some groups or all. Raises TablesError if the tables cannot be read.

    `is_past`: show the status at the end of the period instead of the present one.
    """
    wanted = groups or None
    whole = InstantReader(store, period.until, wanted) if is_past else ViewReader(store, groups=wanted)
    since = whole if is_past else ViewReader(store, groups=wanted, since=period.since)
    for reader in {id(each): each for each in (whole, since)}.values():
        literals = f"{instant_sql(period.until)} AS now_at, {instant_sql(period.since)} AS since_at"
        reader.define("clock", f"SELECT {literals}")
    rows = {name: _rows(whole if name == "status" else since, name, period) for name in _QUERIES}
    return Found(period, groups, rows)


def _rows(reader: ViewReader, name: str, period: Period) -> list[Row]:
    for view in _READS[name]:
        reader.relation(view)
    for table in _TABLES:
        reader.define_table(table)
    values = {
        "$from": instant_sql(period.since),
        "$to": instant_sql(period.until),
        "$step": str(period.step),
        "$pixel": str(max(period.seconds / _PIXELS, 0.1)),
        "$not_looked": f"'{NOT_LOOKED}'",
        "$buckets": str(max(1, int(-(-period.seconds // period.step)))),
    }
    query = _QUERIES[name]
    for mark, value in sorted(values.items(), reverse=True):
        query = query.replace(mark, value)
    try:
        return fetch_rows(reader.connection.sql(query))
    except (duckdb.Error, OSError) as error:
        raise TablesError(f"cannot read the tables: {first_line(error)}") from error
