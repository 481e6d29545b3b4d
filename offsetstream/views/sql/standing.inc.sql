-- For each of the `points` (a cell and a minute): the last minute in which the cell was committed, and in which its end was sampled. A
-- topic that was deleted by that time has no end; nor has one whose last sample is too old. A commit in an earlier log that had ended by
-- that time no longer counts.
marked AS (
  SELECT p.offsets_partition, p.group_id, p.topic, p.partition, p.minute,
         max(c.minute) OVER (PARTITION BY p.offsets_partition, p.group_id, p.topic, p.partition ORDER BY p.minute NULLS FIRST
           ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS commit_minute
  FROM points AS p
  LEFT JOIN committed AS c
    ON c.offsets_partition = p.offsets_partition AND c.group_id = p.group_id AND c.topic = p.topic AND c.partition = p.partition AND c.minute = p.minute
), both_kinds AS (
  SELECT offsets_partition, group_id, topic, partition, minute, commit_minute, 1 AS kind, CAST(NULL AS TIMESTAMP) AS look_minute FROM marked
  UNION ALL
  SELECT NULL, NULL, topic, partition, minute, NULL, 0, minute FROM sampled
), in_order AS (
  SELECT offsets_partition, group_id, topic, partition, minute, commit_minute, kind,
         max(look_minute) OVER (PARTITION BY topic, partition ORDER BY minute NULLS FIRST, kind NULLS FIRST ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS look_minute
  FROM both_kinds
), standing AS (
  SELECT o.offsets_partition, o.group_id, o.topic, o.partition, o.minute, o.commit_minute = o.minute AS is_committed, c.log_id, c.record_offset,
         c.committed_offset, c.is_tombstone, s.topic_id, s.last_stable_offset, s.readable_end, s.sampled_at, s.held_until, s.log_start_offset,
         CASE WHEN (t.deleted_at IS NULL OR t.deleted_at > o.minute + INTERVAL '1' MINUTE) AND s.known_until >= o.minute + INTERVAL '1' MINUTE
              THEN s.high_watermark END AS high_watermark
  FROM in_order AS o
  JOIN committed AS c
    ON c.offsets_partition = o.offsets_partition AND c.group_id = o.group_id AND c.topic = o.topic AND c.partition = o.partition
   AND c.minute = o.commit_minute
  LEFT JOIN sampled AS s ON s.topic = o.topic AND s.partition = o.partition AND s.minute = o.look_minute
  LEFT JOIN topics AS t ON t.topic_id = s.topic_id
  LEFT JOIN offsets_partitions AS p ON p.offsets_partition = o.offsets_partition
  WHERE o.kind = 1 AND coalesce(c.log_id >= p.log_id OR o.minute < p.history_complete_from, true)
)
