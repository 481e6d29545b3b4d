-- Reads: clock, max_age, topic_partitions, topics
WITH ranked AS (
  SELECT
    p.topic,
    p.topic_id,
    p.partition,
    p.leader_id,
    p.log_start_offset,
    p.high_watermark,
    p.last_stable_offset,
    p.readable_end,
    p.open_transaction,
    p.open_transaction_since,
    p.sampled_at,
    p.changed_at,
    p.error,
    t.deleted_at,
    ROW_NUMBER() OVER (
      PARTITION BY p.topic, p.partition
      ORDER BY CASE WHEN t.deleted_at IS NULL THEN 0 ELSE 1 END NULLS FIRST, CASE WHEN p.error IS NULL THEN 0 ELSE 1 END NULLS FIRST, COALESCE(EPOCH_US(p.sampled_at), 0) DESC, COALESCE(p.topic_id, '') NULLS FIRST
    ) AS nth
  FROM topic_partitions AS p
  LEFT JOIN topics AS t
    ON t.topic_id = p.topic_id
)
SELECT
  topic,
  topic_id,
  partition,
  leader_id,
  log_start_offset,
  high_watermark,
  last_stable_offset,
  readable_end,
  open_transaction,
  open_transaction_since,
  sampled_at,
  changed_at,
  error,
  CASE
    WHEN TRY_CAST(EPOCH_US(now_at) - EPOCH_US(sampled_at) AS DOUBLE) > max_age_seconds * TRY_CAST(1000000 AS DOUBLE)
    THEN 'its end has been unknown for the last ' || TRY_CAST((
      EPOCH_US(now_at) - EPOCH_US(sampled_at)
    ) // 1000000 AS TEXT) || ' s'
  END AS stale_reason
FROM ranked
CROSS JOIN clock
CROSS JOIN max_age
WHERE
  nth = 1 AND deleted_at IS NULL
