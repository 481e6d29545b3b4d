-- Reads: decoded_logs, group_history, offset_commits
WITH merged AS (
  SELECT
    log_id,
    offsets_partition,
    record_offset,
    group_id,
    1 AS is_commit,
    TRY_CAST(NULL AS BIGINT) AS change_offset
  FROM offset_commits
  UNION ALL
  SELECT
    log_id,
    offsets_partition,
    record_offset,
    group_id,
    0,
    record_offset
  FROM group_history
), placed AS (
  SELECT
    log_id,
    offsets_partition,
    record_offset,
    group_id,
    is_commit,
    MAX(change_offset) OVER (
      PARTITION BY log_id, offsets_partition, group_id
      ORDER BY record_offset NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS change_offset
  FROM merged
)
SELECT
  p.log_id,
  p.offsets_partition,
  p.record_offset,
  g.group_type,
  CASE
    WHEN d.decoded_from_offset IS NULL OR p.record_offset < d.decoded_from_offset
    THEN 'unknown'
    WHEN g.is_removed
    THEN 'Gone'
    ELSE COALESCE(g.state, 'no members ever')
  END AS group_state,
  CASE
    WHEN d.decoded_from_offset IS NULL OR p.record_offset < d.decoded_from_offset
    THEN NULL
    WHEN g.is_removed
    THEN 0
    ELSE COALESCE(g.member_count, 0)
  END AS member_count,
  COALESCE(g.generation, g.group_epoch) AS group_epoch,
  COALESCE(
    g.group_type = 'Consumer'
    OR (
      g.group_type = 'Classic' AND g.protocol_type = 'consumer'
    ),
    FALSE
  ) AS has_owners
FROM placed AS p
LEFT JOIN group_history AS g
  ON g.log_id = p.log_id
  AND g.offsets_partition = p.offsets_partition
  AND g.group_id = p.group_id
  AND g.record_offset = p.change_offset
LEFT JOIN decoded_logs AS d
  ON d.log_id = p.log_id AND d.offsets_partition = p.offsets_partition
WHERE
  p.is_commit = 1
