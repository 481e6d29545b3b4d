-- One row per committed offset: how long ago the message at it was written, interpolated between samples of the log's end offset. Where the
-- samples do not reach back that far, or are too far apart, method is "at least". Nothing is extrapolated.
--
--   group_id STRING: Group id
--   topic STRING: Topic
--   partition INT: Partition of the topic
--   committed_offset BIGINT: Committed offset; null if there is none or it is negative
--   log_end_offset BIGINT: End offset of the log at the last sample
--   time_lag_seconds DOUBLE: Age of the next message to read, in seconds; 0 if none waits, null if it is unknown
--   method STRING: caught up, interpolated, at least (older than a sample that already had it), topic recreated, no offset or no sample that tells
--   sampled_at TIMESTAMP: Time at which the end offset was sampled
--   as_of TIMESTAMP: Time up to which the data is complete: the earlier of the last check of the group's offsets partition and the last sample of the end offset
--   is_stale BOOLEAN: Whether as_of is too old to describe the present
WITH kept AS (
  -- Truncated records are gone: a sample counts only if no later one is lower.
  SELECT i.topic, i.partition, i.sampled_at, i.held_until, i.known_until, i.high_watermark
  FROM end_intervals AS i
  JOIN partition_ends AS e ON e.topic = i.topic AND e.topic_id IS NOT DISTINCT FROM i.topic_id AND e.partition = i.partition
  WHERE i.high_watermark <= i.lowest_from
), rises AS (
  SELECT topic, partition, high_watermark AS from_offset, held_until AS from_at, known_until, sampled_at,
         lead(high_watermark) OVER (PARTITION BY topic, partition ORDER BY sampled_at NULLS FIRST) AS to_offset,
         lead(sampled_at) OVER (PARTITION BY topic, partition ORDER BY sampled_at NULLS FIRST) AS to_at
  FROM kept
), first_looks AS (
  SELECT topic, partition, min(sampled_at) AS first_at FROM kept GROUP BY topic, partition
), committed AS (
  SELECT c.group_id, c.topic, c.partition, CASE WHEN c.committed_offset >= 0 THEN c.committed_offset END AS committed_offset,
         CASE WHEN c.committed_offset >= 0 THEN greatest(c.committed_offset, e.log_start_offset) END AS next_to_read, e.sampled_at,
         CASE WHEN e.error IS NULL AND NOT coalesce(c.topic_id <> e.topic_id AND c.record_timestamp > e.sampled_at, false)
              THEN e.high_watermark END AS high_watermark, e.readable_end,
         coalesce(c.topic_id <> e.topic_id, false) AS is_other_topic,
         least(now_at, coalesce(f.as_of, now_at), coalesce(e.sampled_at, now_at)) AS as_of,
         f.stale_reason IS NOT NULL OR e.stale_reason IS NOT NULL AS is_stale
  FROM committed_offsets AS c CROSS JOIN clock
  LEFT JOIN freshness AS f ON f.offsets_partition = c.offsets_partition
  LEFT JOIN partition_ends AS e ON e.topic = c.topic AND e.partition = c.partition
  WHERE c.in_coordinator_partition
), ordered AS (
  -- Sort both by offset: an offset lies in the last rise that starts at it or before it.
  SELECT topic, partition, next_to_read AS place, 1 AS kind, group_id, committed_offset, high_watermark, sampled_at, as_of, is_stale, CAST(NULL AS TIMESTAMP) AS rise_at
  FROM committed WHERE high_watermark IS NOT NULL AND next_to_read < coalesce(readable_end, high_watermark) AND NOT is_other_topic
  UNION ALL
  SELECT topic, partition, from_offset, 0, NULL, NULL, NULL, sampled_at, NULL, NULL, sampled_at FROM rises WHERE to_offset > from_offset
), found AS (
  SELECT topic, partition, place, kind, group_id, committed_offset, high_watermark, sampled_at, as_of, is_stale,
         max(rise_at) OVER (PARTITION BY topic, partition ORDER BY place NULLS FIRST, kind NULLS FIRST ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS rise_at
  FROM ordered
), told AS (
  SELECT f.group_id, f.topic, f.partition, f.committed_offset, f.high_watermark, f.sampled_at, f.as_of, f.is_stale, f.place,
         r.to_offset, r.to_at, r.from_offset, r.from_at, CASE WHEN r.to_offset > f.place THEN r.to_at ELSE b.first_at END AS first_at,
         CASE WHEN r.to_offset > f.place AND r.to_at <= r.known_until THEN 'interpolated' ELSE 'at least' END AS method
  FROM found AS f
  LEFT JOIN rises AS r ON r.topic = f.topic AND r.partition = f.partition AND r.sampled_at = f.rise_at
  LEFT JOIN first_looks AS b ON b.topic = f.topic AND b.partition = f.partition
  WHERE f.kind = 1
  UNION ALL
  SELECT group_id, topic, partition, committed_offset, high_watermark, sampled_at, as_of, is_stale, next_to_read, NULL, NULL, NULL, NULL, NULL,
         CASE WHEN committed_offset IS NULL THEN 'no offset' WHEN high_watermark IS NULL THEN 'no sample' WHEN is_other_topic THEN 'topic recreated' ELSE 'caught up' END
  FROM committed WHERE committed_offset IS NULL OR high_watermark IS NULL OR is_other_topic OR next_to_read >= coalesce(readable_end, high_watermark)
)
SELECT group_id, topic, partition, committed_offset, high_watermark AS log_end_offset,
       CASE method
         WHEN 'caught up' THEN CAST(0 AS DOUBLE)
         WHEN 'interpolated' THEN greatest(CAST(0 AS DOUBLE), (
           CAST(unix_micros(as_of) - unix_micros(to_at) AS DOUBLE)
           + CAST(to_offset - place AS DOUBLE) * CAST(unix_micros(to_at) - unix_micros(from_at) AS DOUBLE)
             / nullif(CAST(to_offset - from_offset AS DOUBLE), 0)) / CAST(1000000 AS DOUBLE))
         WHEN 'at least' THEN greatest(CAST(0 AS DOUBLE), CAST(unix_micros(as_of) - unix_micros(first_at) AS DOUBLE) / CAST(1000000 AS DOUBLE))
       END AS time_lag_seconds,
       method, sampled_at, as_of, is_stale
FROM told
