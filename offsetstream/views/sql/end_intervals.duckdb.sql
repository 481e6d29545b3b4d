-- Reads: end_offsets, topic_partitions
WITH looks AS (
  /* Read the newest sample first: while a job runs, the history is then at least as recent. */
  SELECT
    topic,
    topic_id,
    partition,
    changed_at AS sampled_at,
    LEAST(changed_at, sampled_at - INTERVAL '70' SECOND) AS previous_sampled_at,
    high_watermark,
    log_start_offset,
    last_stable_offset,
    readable_end,
    1 AS source,
    TRY_CAST(NULL AS BIGINT) AS apart_seconds
  FROM topic_partitions
  WHERE
    NOT high_watermark IS NULL AND NOT changed_at IS NULL
  UNION ALL
  SELECT
    topic,
    topic_id,
    partition,
    sampled_at,
    sampled_at,
    high_watermark,
    log_start_offset,
    last_stable_offset,
    readable_end,
    2,
    NULL
  FROM topic_partitions
  WHERE
    NOT high_watermark IS NULL AND NOT changed_at IS NULL
  UNION ALL
  SELECT
    topic,
    topic_id,
    partition,
    sampled_at,
    previous_sampled_at,
    high_watermark,
    log_start_offset,
    last_stable_offset,
    readable_end,
    0,
    COALESCE((
      EPOCH_US(sampled_at) - EPOCH_US(previous_sampled_at)
    ) // 1000000, 0)
  FROM end_offsets
  WHERE
    NOT high_watermark IS NULL
), chained AS (
  SELECT
    topic,
    topic_id,
    partition,
    sampled_at,
    high_watermark,
    log_start_offset,
    last_stable_offset,
    readable_end,
    MIN(apart_seconds) OVER (
      PARTITION BY topic, topic_id, partition
      ORDER BY sampled_at NULLS FIRST, source NULLS FIRST
      ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING
    ) AS apart_seconds,
    LEAD(log_start_offset) OVER (
      PARTITION BY topic, topic_id, partition
      ORDER BY sampled_at NULLS FIRST, source NULLS FIRST
    ) AS next_log_start_offset,
    LEAD(sampled_at) OVER (
      PARTITION BY topic, topic_id, partition
      ORDER BY sampled_at NULLS FIRST, source NULLS FIRST
    ) AS next_sampled_at,
    LEAD(previous_sampled_at) OVER (
      PARTITION BY topic, topic_id, partition
      ORDER BY sampled_at NULLS FIRST, source NULLS FIRST
    ) AS seen_until,
    LEAD(high_watermark) OVER (
      PARTITION BY topic, topic_id, partition
      ORDER BY sampled_at NULLS FIRST, source NULLS FIRST
    ) AS next_offset,
    MIN(high_watermark) OVER (
      PARTITION BY topic, topic_id, partition
      ORDER BY sampled_at NULLS FIRST, source NULLS FIRST
      ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
    ) AS lowest_from,
    MIN(high_watermark) OVER (
      PARTITION BY topic, topic_id, partition
      ORDER BY sampled_at NULLS FIRST, source NULLS FIRST
      ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
    ) AS next_lowest
  FROM looks
)
/* The job does not record its sample interval. Take the smallest of several distances: the others may contain an outage of the job. */
SELECT
  topic,
  topic_id,
  partition,
  sampled_at,
  GREATEST(sampled_at, COALESCE(seen_until, sampled_at)) AS held_until,
  GREATEST(sampled_at, COALESCE(seen_until, sampled_at)) + GREATEST(120, 2 * COALESCE(apart_seconds, 0)) * INTERVAL '1' SECOND AS known_until,
  high_watermark,
  log_start_offset,
  last_stable_offset,
  readable_end,
  lowest_from,
  next_sampled_at,
  next_offset,
  next_lowest,
  next_log_start_offset
FROM chained
WHERE
  next_sampled_at IS NULL OR next_sampled_at > sampled_at
