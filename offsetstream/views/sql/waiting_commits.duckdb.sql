-- Reads: offset_commits, waiting_cells
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
)
SELECT
  w.cell,
  h.record_offset,
  h.record_timestamp,
  h.committed_offset,
  h.commit_timestamp_ms
FROM waiting_cells AS w
LEFT JOIN tombstones AS d
  ON d.log_id = w.log_id
  AND d.offsets_partition = w.offsets_partition
  AND d.group_id = w.group_id
  AND d.topic = w.topic
  AND d.partition = w.partition
JOIN offset_commits AS h
  ON h.log_id = w.log_id
  AND h.offsets_partition = w.offsets_partition
  AND h.group_id = w.group_id
  AND h.topic = w.topic
  AND h.partition = w.partition
  AND h.record_offset > COALESCE(d.record_offset, -1)
