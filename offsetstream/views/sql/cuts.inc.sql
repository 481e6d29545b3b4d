-- For each offsets partition: the log that was current at :at, and its first record that does not count at :at. That is the first record,
-- in log order, with a time of :at or later, or that an open transaction blocked according to the last sample of __consumer_offsets before
-- :at. An old sample is ignored, because the transaction may have ended long before. Then only the time decides.
records AS (
  SELECT offsets_partition, log_id, record_offset, record_timestamp FROM offset_commits
  UNION ALL SELECT offsets_partition, log_id, record_offset, record_timestamp FROM group_records
  UNION ALL SELECT offsets_partition, log_id, record_offset, record_timestamp FROM undecodable_records
), ranges AS (
  SELECT offsets_partition, log_id, min(record_timestamp) AS first_at, min(CASE WHEN record_timestamp >= :at THEN record_offset END) AS cut_offset
  FROM records GROUP BY offsets_partition, log_id
), logs_then AS (
  -- Logs before the present one give no answer (they may have gaps), and the present one may have no record yet.
  SELECT r.offsets_partition, max(r.log_id) AS log_id
  FROM ranges AS r LEFT JOIN offsets_partitions AS p ON p.offsets_partition = r.offsets_partition
  WHERE r.first_at < :at AND coalesce(r.log_id >= p.log_id, true)
  GROUP BY r.offsets_partition
), looks AS (
  SELECT partition AS offsets_partition, topic_id, last_stable_offset, high_watermark, sampled_at,
         lead(previous_sampled_at) OVER (PARTITION BY topic_id, partition ORDER BY sampled_at NULLS FIRST) AS held_until,
         lead(last_stable_offset) OVER (PARTITION BY topic_id, partition ORDER BY sampled_at NULLS FIRST) AS next_stable_offset
  FROM end_offsets WHERE topic = '__consumer_offsets'
), ends_then AS (
  -- A running job writes a row every ten minutes.
  SELECT offsets_partition, last_stable_offset, high_watermark,
         next_stable_offset = last_stable_offset
           OR coalesce(held_until + INTERVAL '2' MINUTE, sampled_at + INTERVAL '11' MINUTE) >= :at AS tells,
         row_number() OVER (PARTITION BY offsets_partition ORDER BY sampled_at DESC, coalesce(topic_id, '') NULLS FIRST) AS nth
  FROM looks WHERE sampled_at <= :at
), cuts AS (
  SELECT l.offsets_partition, l.log_id,
         least(r.cut_offset, CASE WHEN e.tells AND e.last_stable_offset < e.high_watermark THEN e.last_stable_offset END) AS cut_offset
  FROM logs_then AS l
  JOIN ranges AS r ON r.offsets_partition = l.offsets_partition AND r.log_id = l.log_id
  LEFT JOIN ends_then AS e ON e.offsets_partition = l.offsets_partition AND e.nth = 1
), gaps AS (
  -- A partition whose history does not reach back that far has only these rows: one for itself and one for each of its groups.
  SELECT offsets_partition, history_complete_from AS unknown_before, 'the history is complete from unknown_before on only' AS unknown_reason
  FROM offsets_partitions WHERE history_complete_from IS NULL OR history_complete_from > :at
), unknowns AS (
  SELECT g.offsets_partition, CAST(NULL AS STRING) AS group_id, g.unknown_before, g.unknown_reason FROM gaps AS g
  UNION ALL
  SELECT DISTINCT g.offsets_partition, c.group_id, g.unknown_before, g.unknown_reason
  FROM gaps AS g JOIN offset_commits AS c ON c.offsets_partition = g.offsets_partition
)
