-- Reads: clock, offset_commits
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
), steps AS (
  SELECT
    log_id,
    offsets_partition,
    record_offset,
    group_id,
    topic,
    partition,
    commit_timestamp,
    value_bytes,
    is_tombstone,
    committed_offset - LAG(committed_offset) OVER (
      PARTITION BY log_id, offsets_partition, group_id, topic, partition
      ORDER BY record_offset NULLS FIRST
    ) AS moved
  FROM offset_commits
)
SELECT
  s.group_id,
  s.topic,
  DATE_TRUNC('MINUTE', s.commit_timestamp) AS minute,
  COUNT(*) AS commits,
  COUNT(DISTINCT s.partition) AS partitions,
  TRY_CAST(SUM(GREATEST(COALESCE(s.moved, 0), 0)) AS BIGINT) AS messages,
  COUNT(CASE WHEN s.moved = 0 THEN 1 END) AS commits_without_progress,
  COUNT(CASE WHEN s.moved < 0 THEN 1 END) AS commits_back,
  TRY_CAST(SUM(s.value_bytes) AS BIGINT) AS value_bytes
FROM steps AS s
CROSS JOIN clock
LEFT JOIN repeated AS r
  ON r.log_id = s.log_id
  AND r.offsets_partition = s.offsets_partition
  AND r.record_offset = s.record_offset
WHERE
  r.record_offset IS NULL AND NOT s.is_tombstone AND s.commit_timestamp >= since_at
GROUP BY
  s.group_id,
  s.topic,
  DATE_TRUNC('MINUTE', s.commit_timestamp)
