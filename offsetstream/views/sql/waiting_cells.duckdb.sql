-- Reads: clock, committed_offsets, freshness, partition_ends
SELECT
  c.offsets_partition * 281474976710656 + c.record_offset AS cell,
  c.log_id,
  c.offsets_partition,
  c.group_id,
  c.topic,
  c.partition,
  e.topic_id,
  GREATEST(c.committed_offset, e.log_start_offset) AS next_to_read,
  e.sampled_at,
  LEAST(now_at, e.sampled_at, COALESCE(f.as_of, now_at)) AS as_of
FROM committed_offsets AS c
CROSS JOIN clock
LEFT JOIN freshness AS f
  ON f.offsets_partition = c.offsets_partition
JOIN partition_ends AS e
  ON e.topic = c.topic
  AND e.partition = c.partition
  AND e.high_watermark > c.committed_offset
WHERE
  c.in_coordinator_partition AND c.committed_offset >= 0
