-- Reads: clock, freshness, group_status_partitions, groups, verdicts
WITH ranked AS (
  SELECT
    p.*,
    CASE p.status
      WHEN 'OK'
      THEN 1
      WHEN 'WARN'
      THEN 2
      WHEN 'STOP'
      THEN 4
      WHEN 'STALL'
      THEN 5
      ELSE 6
    END AS status_level,
    v.rank
  FROM group_status_partitions AS p
  JOIN verdicts AS v
    ON v.verdict = p.verdict
), placed AS (
  SELECT
    r.*,
    ROW_NUMBER() OVER (
      PARTITION BY group_id
      ORDER BY status_level DESC, current_lag DESC, topic NULLS FIRST, partition NULLS FIRST
    ) AS nth,
    ROW_NUMBER() OVER (
      PARTITION BY group_id
      ORDER BY rank DESC, current_lag DESC, topic NULLS FIRST, partition NULLS FIRST
    ) AS verdict_nth
  FROM ranked AS r
), folded AS (
  SELECT
    group_id,
    MAX(status_level) AS status_level,
    TRY_CAST(SUM(current_lag) AS BIGINT) AS total_lag,
    MAX(current_lag) AS max_lag,
    TRY_CAST(SUM(messages_lost) AS BIGINT) AS messages_lost,
    COUNT(*) AS partitions,
    COUNT(CASE WHEN level IN ('WARN', 'ERR') THEN 1 END) AS partitions_not_ok,
    COUNT(CASE WHEN complete >= 1 THEN 1 END) AS complete,
    MAX(last_commit_at_ms) AS last_commit_at_ms,
    MAX(offsets_partition) AS offsets_partition,
    MIN(as_of) AS as_of,
    MAX(CASE WHEN is_stale THEN 1 ELSE 0 END) AS is_stale,
    MAX(CASE WHEN nth = 1 THEN status END) AS worst_status,
    MAX(CASE WHEN nth = 1 THEN topic END) AS worst_topic,
    MAX(CASE WHEN nth = 1 THEN partition END) AS worst_partition,
    MAX(CASE WHEN nth = 1 THEN status_reason END) AS status_reason,
    MAX(CASE WHEN verdict_nth = 1 THEN verdict END) AS verdict,
    MAX(CASE WHEN verdict_nth = 1 THEN topic END) AS verdict_topic,
    MAX(CASE WHEN verdict_nth = 1 THEN partition END) AS verdict_partition,
    MAX(CASE WHEN verdict_nth = 1 THEN verdict_reason END) AS verdict_reason
  FROM placed
  GROUP BY
    group_id
), known AS (
  SELECT
    group_id
  FROM folded
  UNION
  SELECT
    group_id
  FROM groups
  WHERE
    in_coordinator_partition
)
SELECT
  k.group_id,
  g.group_type,
  g.state AS group_state,
  COALESCE(g.member_count, 0) AS member_count,
  v.level,
  v.verdict,
  f.verdict_topic,
  f.verdict_partition,
  CASE
    WHEN NOT f.group_id IS NULL
    THEN f.verdict_reason
    WHEN r.is_stale
    THEN r.stale_reason
    WHEN g.group_type = 'Share'
    THEN 'share group: its offsets are in __share_group_state'
    ELSE 'no committed offset'
  END AS verdict_reason,
  CASE
    WHEN f.group_id IS NULL
    OR f.last_commit_at_ms < EPOCH_US(now_at) // 1000000 * 1000 - 604800000
    THEN 'NOTFOUND'
    WHEN f.status_level > 2
    THEN 'ERR'
    WHEN f.status_level = 2
    THEN 'WARN'
    ELSE 'OK'
  END AS status,
  f.worst_status,
  f.worst_topic,
  f.worst_partition,
  COALESCE(f.status_reason, 'no committed offset') AS status_reason,
  f.total_lag,
  f.max_lag,
  f.messages_lost,
  TRY_CAST(COALESCE(f.partitions, 0) AS INT) AS partitions,
  TRY_CAST(COALESCE(f.partitions_not_ok, 0) AS INT) AS partitions_not_ok,
  TRY_CAST(f.complete AS DOUBLE) / NULLIF(TRY_CAST(f.partitions AS DOUBLE), 0) AS complete,
  f.last_commit_at_ms,
  COALESCE(f.offsets_partition, g.offsets_partition) AS offsets_partition,
  COALESCE(f.as_of, LEAST(now_at, r.as_of)) AS as_of,
  COALESCE(f.is_stale = 1, r.is_stale, FALSE) AS is_stale
FROM known AS k
CROSS JOIN clock
LEFT JOIN folded AS f
  ON f.group_id = k.group_id
LEFT JOIN groups AS g
  ON g.group_id = k.group_id AND g.in_coordinator_partition
LEFT JOIN freshness AS r
  ON r.offsets_partition = g.offsets_partition
JOIN verdicts AS v
  ON v.verdict = COALESCE(f.verdict, 'unknown')
