-- Helper: every end that was sampled, how long it held, and what came after it. The newest look (topic_partitions) counts as
-- two samples: where end_offsets could not be written, its last row is older, and may have held for another minute at most.
--
--   topic STRING: Topic
--   topic_id STRING: Topic id; null where it is not known
--   partition INT: Partition of the topic
--   sampled_at TIMESTAMP: First time at which this was seen
--   held_until TIMESTAMP: Last time at which this was seen
--   known_until TIMESTAMP: So long after that it may be taken for the end: two minutes, or two looks of a job that looks less often
--   high_watermark BIGINT: End for read_uncommitted
--   log_start_offset BIGINT: First offset of the log
--   last_stable_offset BIGINT: End for read_committed
--   readable_end BIGINT: No record of committed transactions was there from here on; null where nobody had read there
--   lowest_from BIGINT: The lowest end from this row on: lower than its own where the log was cut since
--   next_sampled_at TIMESTAMP: First time at which the next row was seen; null for the newest
--   next_offset BIGINT: Its end
--   next_lowest BIGINT: The lowest end from the next row on
--   next_log_start_offset BIGINT: Its first offset of the log
WITH looks AS (
  -- First the newest look: of a job at work the history is then read at least as far.
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
         min(apart_seconds) OVER (PARTITION BY topic, topic_id, partition ORDER BY sampled_at, source
           ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING) AS apart_seconds,
         lead(log_start_offset) OVER (PARTITION BY topic, topic_id, partition ORDER BY sampled_at, source) AS next_log_start_offset,
         lead(sampled_at) OVER (PARTITION BY topic, topic_id, partition ORDER BY sampled_at, source) AS next_sampled_at,
         lead(previous_sampled_at) OVER (PARTITION BY topic, topic_id, partition ORDER BY sampled_at, source) AS seen_until,
         lead(high_watermark) OVER (PARTITION BY topic, topic_id, partition ORDER BY sampled_at, source) AS next_offset,
         min(high_watermark) OVER (PARTITION BY topic, topic_id, partition ORDER BY sampled_at, source
           ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS lowest_from,
         min(high_watermark) OVER (PARTITION BY topic, topic_id, partition ORDER BY sampled_at, source
           ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS next_lowest
  FROM looks
)
-- How far apart its looks are a job does not write down. The least of some distances counts: in others there may be an outage of the job.
SELECT topic, topic_id, partition, sampled_at, greatest(sampled_at, coalesce(seen_until, sampled_at)) AS held_until,
       greatest(sampled_at, coalesce(seen_until, sampled_at))
         + greatest(120, 2 * coalesce(apart_seconds, 0)) * INTERVAL '1' SECOND AS known_until,
       high_watermark, log_start_offset, last_stable_offset, readable_end, lowest_from, next_sampled_at, next_offset, next_lowest, next_log_start_offset
FROM chained WHERE next_sampled_at IS NULL OR next_sampled_at > sampled_at
