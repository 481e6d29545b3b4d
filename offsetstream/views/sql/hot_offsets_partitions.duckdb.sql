-- Reads: clock, group_records, offset_commits, offsets_partitions
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
), repeated_records AS (
  SELECT DISTINCT
    h.log_id,
    h.offsets_partition,
    h.record_offset
  FROM group_records AS h
  JOIN group_records AS n
    ON n.offsets_partition = h.offsets_partition
    AND n.record_offset = h.record_offset
    AND n.record_timestamp = h.record_timestamp
  WHERE
    n.log_id > 0 AND n.log_id > h.log_id
), recent AS (
  SELECT
    h.offsets_partition,
    h.group_id,
    1 AS is_commit,
    COALESCE(h.value_bytes, 0) AS value_bytes
  FROM offset_commits AS h
  CROSS JOIN clock
  LEFT JOIN repeated AS r
    ON r.log_id = h.log_id
    AND r.offsets_partition = h.offsets_partition
    AND r.record_offset = h.record_offset
  WHERE
    r.record_offset IS NULL AND h.record_timestamp >= since_at
  UNION ALL
  SELECT
    h.offsets_partition,
    h.group_id,
    0,
    COALESCE(h.value_bytes, 0)
  FROM group_records AS h
  CROSS JOIN clock
  LEFT JOIN repeated_records AS r
    ON r.log_id = h.log_id
    AND r.offsets_partition = h.offsets_partition
    AND r.record_offset = h.record_offset
  WHERE
    r.record_offset IS NULL AND h.record_timestamp >= since_at
), by_group AS (
  SELECT
    offsets_partition,
    group_id,
    COUNT(*) AS records,
    SUM(is_commit) AS commits,
    SUM(value_bytes) AS value_bytes
  FROM recent
  GROUP BY
    offsets_partition,
    group_id
), ranked AS (
  SELECT
    b.*,
    ROW_NUMBER() OVER (PARTITION BY offsets_partition ORDER BY records DESC, group_id NULLS FIRST) AS place
  FROM by_group AS b
), summed AS (
  SELECT
    offsets_partition,
    TRY_CAST(SUM(records) AS BIGINT) AS records,
    TRY_CAST(SUM(commits) AS BIGINT) AS commits,
    TRY_CAST(SUM(value_bytes) AS BIGINT) AS value_bytes,
    COUNT(*) AS active_groups,
    MAX(CASE WHEN place = 1 THEN group_id END) AS busiest_group,
    MAX(CASE WHEN place = 1 THEN records END) AS busiest_records
  FROM ranked
  GROUP BY
    offsets_partition
)
SELECT
  p.offsets_partition,
  p.coordinator_id,
  COALESCE(s.records, 0) AS records,
  COALESCE(s.commits, 0) AS commits,
  COALESCE(s.value_bytes, 0) AS value_bytes,
  COALESCE(s.active_groups, 0) AS active_groups,
  s.busiest_group,
  s.busiest_records,
  TRY_CAST(COALESCE(s.records, 0) AS DOUBLE) / NULLIF(TRY_CAST(NULLIF(TRY_CAST(SUM(s.records) OVER () AS BIGINT), 0) AS DOUBLE), 0) AS share,
  p.next_offset - p.log_start_offset AS log_offsets,
  p.high_watermark - p.last_stable_offset AS blocked_offsets,
  p.last_stable_offset_since
FROM offsets_partitions AS p
LEFT JOIN summed AS s
  ON s.offsets_partition = p.offsets_partition
