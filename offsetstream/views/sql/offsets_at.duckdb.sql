-- Reads: end_offsets, group_records, offset_commits, offsets_partitions, undecodable_records
WITH records AS (
  SELECT
    offsets_partition,
    log_id,
    record_offset,
    record_timestamp
  FROM offset_commits
  UNION ALL
  SELECT
    offsets_partition,
    log_id,
    record_offset,
    record_timestamp
  FROM group_records
  UNION ALL
  SELECT
    offsets_partition,
    log_id,
    record_offset,
    record_timestamp
  FROM undecodable_records
), ranges AS (
  SELECT
    offsets_partition,
    log_id,
    MIN(record_timestamp) AS first_at,
    MIN(CASE WHEN record_timestamp >= $at THEN record_offset END) AS cut_offset
  FROM records
  GROUP BY
    offsets_partition,
    log_id
), logs_then AS (
  /* Logs before the present one give no answer (they may have gaps), and the present one may have no record yet. */
  SELECT
    r.offsets_partition,
    MAX(r.log_id) AS log_id
  FROM ranges AS r
  LEFT JOIN offsets_partitions AS p
    ON p.offsets_partition = r.offsets_partition
  WHERE
    r.first_at < $at AND COALESCE(r.log_id >= p.log_id, TRUE)
  GROUP BY
    r.offsets_partition
), looks AS (
  SELECT
    partition AS offsets_partition,
    topic_id,
    last_stable_offset,
    high_watermark,
    sampled_at,
    LEAD(previous_sampled_at) OVER (PARTITION BY topic_id, partition ORDER BY sampled_at NULLS FIRST) AS held_until,
    LEAD(last_stable_offset) OVER (PARTITION BY topic_id, partition ORDER BY sampled_at NULLS FIRST) AS next_stable_offset
  FROM end_offsets
  WHERE
    topic = '__consumer_offsets'
), ends_then AS (
  /* A running job writes a row every ten minutes. */
  SELECT
    offsets_partition,
    last_stable_offset,
    high_watermark,
    next_stable_offset = last_stable_offset
    OR COALESCE(held_until + INTERVAL '2' MINUTE, sampled_at + INTERVAL '11' MINUTE) >= $at AS tells,
    ROW_NUMBER() OVER (
      PARTITION BY offsets_partition
      ORDER BY sampled_at DESC, COALESCE(topic_id, '') NULLS FIRST
    ) AS nth
  FROM looks
  WHERE
    sampled_at <= $at
), cuts AS (
  SELECT
    l.offsets_partition,
    l.log_id,
    LEAST(
      r.cut_offset,
      CASE
        WHEN e.tells AND e.last_stable_offset < e.high_watermark
        THEN e.last_stable_offset
      END
    ) AS cut_offset
  FROM logs_then AS l
  JOIN ranges AS r
    ON r.offsets_partition = l.offsets_partition AND r.log_id = l.log_id
  LEFT JOIN ends_then AS e
    ON e.offsets_partition = l.offsets_partition AND e.nth = 1
), gaps AS (
  /* A partition whose history does not reach back that far has only these rows: one for itself and one for each of its groups. */
  SELECT
    offsets_partition,
    history_complete_from AS unknown_before,
    'the history is complete from unknown_before on only' AS unknown_reason
  FROM offsets_partitions
  WHERE
    history_complete_from IS NULL OR history_complete_from > $at
), unknowns AS (
  SELECT
    g.offsets_partition,
    TRY_CAST(NULL AS TEXT) AS group_id,
    g.unknown_before,
    g.unknown_reason
  FROM gaps AS g
  UNION ALL
  SELECT DISTINCT
    g.offsets_partition,
    c.group_id,
    g.unknown_before,
    g.unknown_reason
  FROM gaps AS g
  JOIN offset_commits AS c
    ON c.offsets_partition = g.offsets_partition
), newest AS (
  /* Find these first, so that files without any of them are skipped. */
  SELECT
    c.log_id,
    c.offsets_partition,
    c.group_id,
    c.topic,
    c.partition,
    MAX(c.record_offset) AS record_offset
  FROM offset_commits AS c
  JOIN cuts AS k
    ON k.offsets_partition = c.offsets_partition AND k.log_id = c.log_id
  LEFT JOIN gaps AS g
    ON g.offsets_partition = c.offsets_partition
  WHERE
    g.offsets_partition IS NULL
    AND (
      k.cut_offset IS NULL OR c.record_offset < k.cut_offset
    )
  GROUP BY
    c.log_id,
    c.offsets_partition,
    c.group_id,
    c.topic,
    c.partition
)
SELECT
  c.offsets_partition,
  c.group_id,
  c.topic,
  c.partition,
  c.committed_offset,
  c.leader_epoch,
  c.metadata,
  c.commit_timestamp,
  c.commit_timestamp_ms,
  c.expire_timestamp,
  c.expire_timestamp_ms,
  c.topic_id,
  c.record_offset,
  c.record_timestamp,
  c.log_id,
  TRY_CAST(NULL AS TIMESTAMPTZ) AS unknown_before,
  TRY_CAST(NULL AS TEXT) AS unknown_reason
FROM newest AS n
JOIN offset_commits AS c
  ON c.log_id = n.log_id
  AND c.offsets_partition = n.offsets_partition
  AND c.record_offset = n.record_offset
WHERE
  NOT c.is_tombstone
UNION ALL
SELECT
  offsets_partition,
  group_id,
  NULL,
  NULL,
  NULL,
  NULL,
  NULL,
  NULL,
  NULL,
  NULL,
  NULL,
  NULL,
  NULL,
  NULL,
  NULL,
  unknown_before,
  unknown_reason
FROM unknowns
