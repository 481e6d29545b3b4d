-- One row per committed offset: its age, compared with the usual time between commits of this group and partition.
--
--   offsets_partition INT: Offsets partition of the group
--   group_id STRING: Group id
--   topic STRING: Topic
--   partition INT: Partition of the topic
--   committed_offset BIGINT: Committed offset
--   commit_timestamp TIMESTAMP: Time of the commit
--   age_ms BIGINT: Age of the commit in milliseconds; null if its time is in the future
--   commits BIGINT: Commits in the last day
--   usual_gap_ms BIGINT: 95th percentile of the time between these commits, in milliseconds
--   is_overdue BOOLEAN: Whether the commit is older than usual_gap_ms
--   is_in_future BOOLEAN: Whether the commit time is in the future: a client set it, or clocks differ
--   group_state STRING: State of the group
--   member_count INT: Number of members
--   as_of TIMESTAMP: Time up to which the data is complete
--   is_stale BOOLEAN: Whether as_of is too old to describe the present
WITH
-- @include repeated
, told AS (
  SELECT h.log_id, h.record_offset, h.offsets_partition, h.group_id, h.topic, h.partition, h.commit_timestamp_ms, h.commit_timestamp, since_at,
         h.commit_timestamp_ms - lag(h.commit_timestamp_ms) OVER (
           PARTITION BY h.log_id, h.offsets_partition, h.group_id, h.topic, h.partition ORDER BY h.record_offset NULLS FIRST) AS gap_ms
  FROM offset_commits AS h CROSS JOIN clock
  WHERE NOT h.is_tombstone AND h.commit_timestamp IS NOT NULL AND h.commit_timestamp >= since_at
), ranked AS (
  SELECT t.offsets_partition, group_id, topic, partition, gap_ms,
         row_number() OVER (PARTITION BY t.offsets_partition, group_id, topic, partition ORDER BY coalesce(gap_ms, -1) NULLS FIRST) AS nth,
         count(*) OVER (PARTITION BY t.offsets_partition, group_id, topic, partition) AS commits,
         count(gap_ms) OVER (PARTITION BY t.offsets_partition, group_id, topic, partition) AS gaps
  FROM told AS t
  LEFT JOIN repeated AS r ON r.log_id = t.log_id AND r.offsets_partition = t.offsets_partition AND r.record_offset = t.record_offset
  WHERE r.record_offset IS NULL
), habits AS (
  -- Commits without a gap sort first.
  SELECT offsets_partition, group_id, topic, partition, max(commits) AS commits,
         max(CASE WHEN nth = commits - gaps + (95 * gaps + 99) div 100 THEN gap_ms END) AS usual_gap_ms
  FROM ranked GROUP BY offsets_partition, group_id, topic, partition
)
SELECT c.offsets_partition, c.group_id, c.topic, c.partition, c.committed_offset, c.commit_timestamp,
       CASE WHEN c.commit_timestamp <= now_at THEN greatest(0, (unix_micros(least(now_at, coalesce(f.as_of, now_at))) - unix_micros(c.commit_timestamp)) div 1000) END AS age_ms,
       coalesce(h.commits, 0) AS commits, h.usual_gap_ms,
       coalesce((unix_micros(least(now_at, coalesce(f.as_of, now_at))) - unix_micros(c.commit_timestamp)) div 1000 > h.usual_gap_ms, false) AS is_overdue,
       coalesce(c.commit_timestamp > now_at, false) AS is_in_future, g.state AS group_state, coalesce(g.member_count, 0) AS member_count,
       least(now_at, coalesce(f.as_of, now_at)) AS as_of, coalesce(f.is_stale, false) AS is_stale
FROM committed_offsets AS c CROSS JOIN clock
LEFT JOIN freshness AS f ON f.offsets_partition = c.offsets_partition
LEFT JOIN habits AS h ON h.offsets_partition = c.offsets_partition AND h.group_id = c.group_id AND h.topic = c.topic AND h.partition = c.partition
LEFT JOIN groups AS g ON g.offsets_partition = c.offsets_partition AND g.group_id = c.group_id
WHERE c.in_coordinator_partition
