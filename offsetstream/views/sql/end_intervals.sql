-- Helper: every sampled end offset, how long it stayed the same, and the one that followed. The newest sample (topic_partitions) counts as
-- two samples: if the job could not write end_offsets, the last row there is older and may have been valid for one more minute at most.
--
--   topic STRING: Topic
--   topic_id STRING: Topic id; null if unknown
--   partition INT: Partition of the topic
--   sampled_at TIMESTAMP: Time of the first sample with these values
--   held_until TIMESTAMP: Time of the last sample with these values
--   known_until TIMESTAMP: Time until which the values may be used after held_until: two minutes later, or two sample intervals if the job samples less often
--   high_watermark BIGINT: End offset for read_uncommitted (high watermark)
--   log_start_offset BIGINT: First offset of the log
--   last_stable_offset BIGINT: End offset for read_committed (last stable offset)
--   readable_end BIGINT: No record of a committed transaction was at or after this offset; null if nobody had read there
--   lowest_from BIGINT: Lowest end offset from this row on: lower than its own if the log was truncated later
--   next_sampled_at TIMESTAMP: Time of the first sample of the next row; null for the newest row
--   next_offset BIGINT: End offset of the next row
--   next_lowest BIGINT: Lowest end offset from the next row on
--   next_log_start_offset BIGINT: First offset of the log in the next row
WITH looks AS (
  -- Read the newest sample first: while a job runs, the history is then at least as recent.
  SELECT topic, topic_id, partition, changed_at AS sampled_at, least(changed_at, sampled_at - INTERVAL '70' SECOND) AS previous_sampled_at,
         high_watermark, log_start_offset, last_stable_offset, readable_end, 1 AS source, CAST(NULL AS BIGINT) AS apart_seconds
  FROM topic_partitions WHERE high_watermark IS NOT NULL AND changed_at IS NOT NULL
  UNION ALL
  SELECT topic, topic_id, partition, sampled_at, sampled_at, high_watermark, log_start_offset, last_stable_offset, readable_end, 2, NULL
  FROM topic_partitions WHERE high_watermark IS NOT NULL AND changed_at IS NOT NULL
  UNION ALL
  SELECT topic, topic_id, partition, sampled_at, previous_sampled_at, high_watermark, log_start_offset, last_stable_offset, readable_end, 0,
         coalesce((unix_micros(sampled_at) - unix_micros(previous_sampled_at)) div 1000000, 0)
  FROM end_offsets WHERE high_watermark IS NOT NULL
), chained AS (
  SELECT topic, topic_id, partition, sampled_at, high_watermark, log_start_offset, last_stable_offset, readable_end,
         min(apart_seconds) OVER (PARTITION BY topic, topic_id, partition ORDER BY sampled_at NULLS FIRST, source NULLS FIRST
           ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING) AS apart_seconds,
         lead(log_start_offset) OVER (PARTITION BY topic, topic_id, partition ORDER BY sampled_at NULLS FIRST, source NULLS FIRST) AS next_log_start_offset,
         lead(sampled_at) OVER (PARTITION BY topic, topic_id, partition ORDER BY sampled_at NULLS FIRST, source NULLS FIRST) AS next_sampled_at,
         lead(previous_sampled_at) OVER (PARTITION BY topic, topic_id, partition ORDER BY sampled_at NULLS FIRST, source NULLS FIRST) AS seen_until,
         lead(high_watermark) OVER (PARTITION BY topic, topic_id, partition ORDER BY sampled_at NULLS FIRST, source NULLS FIRST) AS next_offset,
         min(high_watermark) OVER (PARTITION BY topic, topic_id, partition ORDER BY sampled_at NULLS FIRST, source NULLS FIRST
           ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS lowest_from,
         min(high_watermark) OVER (PARTITION BY topic, topic_id, partition ORDER BY sampled_at NULLS FIRST, source NULLS FIRST
           ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS next_lowest
  FROM looks
)
-- The job does not record its sample interval. Take the smallest of several distances: the others may contain an outage of the job.
SELECT topic, topic_id, partition, sampled_at, greatest(sampled_at, coalesce(seen_until, sampled_at)) AS held_until,
       greatest(sampled_at, coalesce(seen_until, sampled_at))
         + greatest(120, 2 * coalesce(apart_seconds, 0)) * INTERVAL '1' SECOND AS known_until,
       high_watermark, log_start_offset, last_stable_offset, readable_end, lowest_from, next_sampled_at, next_offset, next_lowest, next_log_start_offset
FROM chained WHERE next_sampled_at IS NULL OR next_sampled_at > sampled_at
