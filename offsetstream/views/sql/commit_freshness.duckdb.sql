-- Reads: clock, committed_offsets, freshness, groups, offset_commits
WITH repeated AS (
  SELECT DISTINCT
    h.log_id,
    h.offsets_partition,
    h.record_offset
  FROM offset_commits AS h
  JOIN offset_commits AS n
    ON n.offsets_partition = h.offsets_partition
    AND n.record_offset = h.record_offset
    AND n.record_timestamp = h.record_timestamp
  WHERE
    n.log_id > 0 AND n.log_id > h.log_id
), told AS (
  SELECT
    h.log_id,
    h.record_offset,
    h.offsets_partition,
    h.group_id,
    h.topic,
    h.partition,
    h.commit_timestamp_ms,
    h.commit_timestamp,
    since_at,
    h.commit_timestamp_ms - LAG(h.commit_timestamp_ms) OVER (
      PARTITION BY h.log_id, h.offsets_partition, h.group_id, h.topic, h.partition
      ORDER BY h.record_offset NULLS FIRST
    ) AS gap_ms
  FROM offset_commits AS h
  CROSS JOIN clock
  WHERE
    NOT h.is_tombstone
    AND NOT h.commit_timestamp IS NULL
    AND h.commit_timestamp >= since_at
), ranked AS (
  SELECT
    t.offsets_partition,
    group_id,
    topic,
    partition,
    gap_ms,
    ROW_NUMBER() OVER (
      PARTITION BY t.offsets_partition, group_id, topic, partition
      ORDER BY COALESCE(gap_ms, -1) NULLS FIRST
    ) AS nth,
    COUNT(*) OVER (PARTITION BY t.offsets_partition, group_id, topic, partition) AS commits,
    COUNT(gap_ms) OVER (PARTITION BY t.offsets_partition, group_id, topic, partition) AS gaps
  FROM told AS t
  LEFT JOIN repeated AS r
    ON r.log_id = t.log_id
    AND r.offsets_partition = t.offsets_partition
    AND r.record_offset = t.record_offset
  WHERE
    r.record_offset IS NULL
), habits AS (
  /* Commits without a gap sort first. */
  SELECT
    offsets_partition,
    group_id,
    topic,
    partition,
    MAX(commits) AS commits,
    MAX(CASE WHEN nth = commits - gaps + (
      95 * gaps + 99
    ) // 100 THEN gap_ms END) AS usual_gap_ms
  FROM ranked
  GROUP BY
    offsets_partition,
    group_id,
    topic,
    partition
)
SELECT
  c.offsets_partition,
  c.group_id,
  c.topic,
  c.partition,
  c.committed_offset,
  c.commit_timestamp,
  CASE
    WHEN c.commit_timestamp <= now_at
    THEN GREATEST(
      0,
      (
        EPOCH_US(LEAST(now_at, COALESCE(f.as_of, now_at))) - EPOCH_US(c.commit_timestamp)
      ) // 1000
    )
  END AS age_ms,
  COALESCE(h.commits, 0) AS commits,
  h.usual_gap_ms,
  COALESCE(
    (
      EPOCH_US(LEAST(now_at, COALESCE(f.as_of, now_at))) - EPOCH_US(c.commit_timestamp)
    ) // 1000 > h.usual_gap_ms,
    FALSE
  ) AS is_overdue,
  COALESCE(c.commit_timestamp > now_at, FALSE) AS is_in_future,
  g.state AS group_state,
  COALESCE(g.member_count, 0) AS member_count,
  LEAST(now_at, COALESCE(f.as_of, now_at)) AS as_of,
  COALESCE(f.is_stale, FALSE) AS is_stale
FROM committed_offsets AS c
CROSS JOIN clock
LEFT JOIN freshness AS f
  ON f.offsets_partition = c.offsets_partition
LEFT JOIN habits AS h
  ON h.offsets_partition = c.offsets_partition
  AND h.group_id = c.group_id
  AND h.topic = c.topic
  AND h.partition = c.partition
LEFT JOIN groups AS g
  ON g.offsets_partition = c.offsets_partition AND g.group_id = c.group_id
WHERE
  c.in_coordinator_partition
