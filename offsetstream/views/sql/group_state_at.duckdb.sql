-- Reads: cluster, decoded_logs, end_offsets, group_history, group_records, offset_commits, offsets_partitions, undecodable_records
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
), undecoded AS (
  SELECT
    p.offsets_partition,
    p.history_complete_from AS unknown_before,
    CASE
      WHEN p.history_complete_from <= $at
      THEN 'the decoded history is not filled: run maintain --fill-history'
      ELSE 'the history is complete from unknown_before on only'
    END AS unknown_reason
  FROM offsets_partitions AS p
  LEFT JOIN decoded_logs AS d
    ON d.offsets_partition = p.offsets_partition AND d.log_id = p.log_id
  WHERE
    p.history_complete_from IS NULL
    OR p.history_complete_from > $at
    OR d.decoded_from_offset IS NULL
    OR d.decoded_from_offset > 0
), undecoded_groups AS (
  SELECT
    u.offsets_partition,
    TRY_CAST(NULL AS TEXT) AS group_id,
    u.unknown_before,
    u.unknown_reason
  FROM undecoded AS u
  UNION ALL
  SELECT DISTINCT
    u.offsets_partition,
    c.group_id,
    u.unknown_before,
    u.unknown_reason
  FROM undecoded AS u
  JOIN (
    SELECT
      offsets_partition,
      group_id
    FROM offset_commits
    UNION
    SELECT
      offsets_partition,
      group_id
    FROM group_records
  ) AS c
    ON c.offsets_partition = u.offsets_partition
), numbered AS (
  SELECT
    h.offsets_partition,
    h.group_id,
    h.group_type,
    h.state,
    h.is_simple,
    h.protocol_type,
    h.protocol,
    h.generation,
    h.group_epoch,
    h.assignment_epoch,
    h.leader_member_id,
    h.member_count,
    h.state_timestamp,
    h.record_offset,
    h.record_timestamp,
    h.log_id,
    h.is_removed,
    ROW_NUMBER() OVER (PARTITION BY h.offsets_partition, h.group_id ORDER BY h.record_offset DESC) AS nth
  FROM group_history AS h
  JOIN cuts AS k
    ON k.offsets_partition = h.offsets_partition AND k.log_id = h.log_id
  LEFT JOIN undecoded AS u
    ON u.offsets_partition = h.offsets_partition
  WHERE
    u.offsets_partition IS NULL
    AND (
      k.cut_offset IS NULL OR h.record_offset < k.cut_offset
    )
), recorded AS (
  SELECT
    *
  FROM numbered
  WHERE
    nth = 1
), committed AS (
  SELECT
    c.offsets_partition,
    c.group_id,
    c.topic,
    c.partition,
    c.record_offset,
    c.record_timestamp,
    c.log_id,
    c.is_tombstone,
    ROW_NUMBER() OVER (
      PARTITION BY c.offsets_partition, c.group_id, c.topic, c.partition
      ORDER BY c.record_offset DESC
    ) AS nth
  FROM offset_commits AS c
  JOIN cuts AS k
    ON k.offsets_partition = c.offsets_partition AND k.log_id = c.log_id
  LEFT JOIN undecoded AS u
    ON u.offsets_partition = c.offsets_partition
  WHERE
    u.offsets_partition IS NULL
    AND (
      k.cut_offset IS NULL OR c.record_offset < k.cut_offset
    )
), with_commits AS (
  SELECT
    offsets_partition,
    group_id,
    log_id,
    MAX(record_offset) AS record_offset,
    MAX(record_timestamp) AS record_timestamp,
    MAX(CASE WHEN nth = 1 THEN record_offset END) AS live_offset
  FROM committed
  WHERE
    NOT is_tombstone
  GROUP BY
    offsets_partition,
    group_id,
    log_id
), removed AS (
  SELECT
    g.offsets_partition,
    g.group_id,
    MAX(g.record_offset) AS record_offset
  FROM group_records AS g
  JOIN cuts AS k
    ON k.offsets_partition = g.offsets_partition AND k.log_id = g.log_id
  WHERE
    g.is_tombstone
    AND g.key_type IN (2, 3, 11, 17)
    AND (
      k.cut_offset IS NULL OR g.record_offset < k.cut_offset
    )
  GROUP BY
    g.offsets_partition,
    g.group_id
), coordinators AS (
  SELECT
    MAX(group_coordinator) AS group_coordinator
  FROM cluster
), with_offsets AS (
  /* A commit creates a group. The new coordinator keeps it until the group's own tombstone, the classic one as long as it has an offset. */
  SELECT
    c.offsets_partition,
    c.group_id,
    c.log_id,
    c.record_offset,
    c.record_timestamp
  FROM with_commits AS c
  CROSS JOIN coordinators AS k
  LEFT JOIN removed AS t
    ON t.offsets_partition = c.offsets_partition AND t.group_id = c.group_id
  WHERE
    CASE
      WHEN k.group_coordinator = 'classic'
      THEN NOT c.live_offset IS NULL
      ELSE t.record_offset IS NULL OR c.record_offset > t.record_offset
    END
)
SELECT
  offsets_partition,
  group_id,
  group_type,
  state,
  is_simple,
  protocol_type,
  protocol,
  generation,
  group_epoch,
  assignment_epoch,
  leader_member_id,
  member_count,
  state_timestamp,
  record_offset,
  record_timestamp,
  log_id,
  TRY_CAST(NULL AS TIMESTAMPTZ) AS unknown_before,
  TRY_CAST(NULL AS TEXT) AS unknown_reason
FROM recorded
WHERE
  NOT is_removed
UNION ALL
SELECT
  o.offsets_partition,
  o.group_id,
  'Classic',
  'Empty',
  TRUE,
  NULL,
  NULL,
  0,
  NULL,
  NULL,
  NULL,
  0,
  NULL,
  o.record_offset,
  o.record_timestamp,
  o.log_id,
  NULL,
  NULL
FROM with_offsets AS o
LEFT JOIN recorded AS r
  ON r.offsets_partition = o.offsets_partition AND r.group_id = o.group_id
WHERE
  r.group_id IS NULL OR r.is_removed
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
  NULL,
  unknown_before,
  unknown_reason
FROM undecoded_groups
