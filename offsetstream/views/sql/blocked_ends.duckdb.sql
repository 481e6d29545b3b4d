-- Reads: end_offsets, topic_partitions
SELECT
  topic,
  topic_id,
  partition,
  last_stable_offset,
  MIN(sampled_at) AS blocked_since
FROM (
  SELECT
    topic,
    topic_id,
    partition,
    last_stable_offset,
    sampled_at
  FROM end_offsets
  WHERE
    last_stable_offset < high_watermark
  UNION ALL
  SELECT
    topic,
    topic_id,
    partition,
    last_stable_offset,
    changed_at
  FROM topic_partitions
  WHERE
    last_stable_offset < high_watermark AND error IS NULL
) AS h
GROUP BY
  topic,
  topic_id,
  partition,
  last_stable_offset
