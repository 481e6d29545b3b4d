-- Reads: committed_offsets, offset_commits, partition_ends
WITH tombstones AS (
  SELECT
    log_id,
    offsets_partition,
    group_id,
    topic,
    partition,
    MAX(record_offset) AS record_offset
  FROM offset_commits
  WHERE
    is_tombstone
  GROUP BY
    log_id,
    offsets_partition,
    group_id,
    topic,
    partition
), waiting AS (
  SELECT
    c.offsets_partition * 281474976710656 + c.record_offset AS cell,
    c.log_id,
    c.offsets_partition,
    c.group_id,
    c.topic,
    c.partition,
    COALESCE(d.record_offset, -1) AS deleted_offset
  FROM committed_offsets AS c
  JOIN partition_ends AS e
    ON e.topic = c.topic
    AND e.partition = c.partition
    AND e.high_watermark > c.committed_offset
  LEFT JOIN tombstones AS d
    ON d.log_id = c.log_id
    AND d.offsets_partition = c.offsets_partition
    AND d.group_id = c.group_id
    AND d.topic = c.topic
    AND d.partition = c.partition
  WHERE
    c.in_coordinator_partition
)
SELECT
  w.cell,
  h.record_offset,
  h.record_timestamp,
  h.committed_offset,
  h.commit_timestamp_ms
FROM waiting AS w
JOIN offset_commits AS h
  ON h.log_id = w.log_id
  AND h.offsets_partition = w.offsets_partition
  AND h.group_id = w.group_id
  AND h.topic = w.topic
  AND h.partition = w.partition
  AND h.record_offset > w.deleted_offset
