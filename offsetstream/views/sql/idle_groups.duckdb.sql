-- Reads: clock, committed_offsets, freshness, groups, member_history
WITH folded AS (
  SELECT
    offsets_partition,
    group_id,
    COUNT(*) AS offsets,
    COUNT(DISTINCT topic) AS topics,
    MAX(commit_timestamp) AS last_commit_at
  FROM committed_offsets
  WHERE
    in_coordinator_partition
  GROUP BY
    offsets_partition,
    group_id
), left_last AS (
  SELECT
    log_id,
    offsets_partition,
    group_id,
    MAX(record_timestamp) AS last_left_at
  FROM member_history
  WHERE
    change = 'left'
  GROUP BY
    log_id,
    offsets_partition,
    group_id
)
SELECT
  g.group_id,
  g.group_type,
  g.state AS group_state,
  COALESCE(g.member_count, 0) AS member_count,
  COALESCE(o.offsets, 0) AS offsets,
  COALESCE(o.topics, 0) AS topics,
  o.last_commit_at,
  CASE
    WHEN o.last_commit_at <= now_at
    THEN GREATEST(
      0,
      (
        EPOCH_US(LEAST(now_at, COALESCE(f.as_of, now_at))) - EPOCH_US(o.last_commit_at)
      ) // 1000
    )
  END AS idle_ms,
  CASE WHEN g.member_count = 0 THEN COALESCE(l.last_left_at, g.state_timestamp) END AS empty_since,
  CASE
    WHEN g.group_type = 'Share'
    THEN 'share group: its offsets are in __share_group_state'
    WHEN o.group_id IS NULL
    THEN 'never committed'
    WHEN g.member_count > 0
    THEN 'has members'
    ELSE 'no members'
  END AS reason,
  g.offsets_partition,
  LEAST(now_at, COALESCE(f.as_of, now_at)) AS as_of,
  COALESCE(f.is_stale, FALSE) AS is_stale
FROM groups AS g
CROSS JOIN clock
LEFT JOIN freshness AS f
  ON f.offsets_partition = g.offsets_partition
LEFT JOIN folded AS o
  ON o.offsets_partition = g.offsets_partition AND o.group_id = g.group_id
LEFT JOIN left_last AS l
  ON l.log_id = g.log_id
  AND l.offsets_partition = g.offsets_partition
  AND l.group_id = g.group_id
WHERE
  g.in_coordinator_partition
