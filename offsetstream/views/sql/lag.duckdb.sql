-- Reads: clock, committed_offsets, freshness, group_members, groups, last_deletions, member_assignments, offsets_partitions, partition_ends, topics
WITH assigned AS (
  SELECT
    a.offsets_partition,
    a.group_id,
    COALESCE(t.topic, a.topic) AS topic,
    a.partition,
    MIN(a.member_id) AS member_id
  FROM member_assignments AS a
  LEFT JOIN topics AS t
    ON t.topic_id = a.topic_id
  WHERE
    a.in_coordinator_partition
    AND a.kind = 'assigned'
    AND NOT COALESCE(t.topic, a.topic) IS NULL
  GROUP BY
    a.offsets_partition,
    a.group_id,
    COALESCE(t.topic, a.topic),
    a.partition
), places AS (
  SELECT
    offsets_partition,
    group_id,
    topic,
    partition
  FROM committed_offsets
  WHERE
    in_coordinator_partition
  UNION
  SELECT
    offsets_partition,
    group_id,
    topic,
    partition
  FROM assigned
), named AS (
  SELECT
    topic,
    MAX(CASE WHEN deleted_at IS NULL THEN topic_id END) AS topic_id,
    MAX(CASE WHEN deleted_at IS NULL THEN partitions END) AS partitions,
    MAX(CASE WHEN deleted_at IS NULL THEN last_seen_at END) AS last_seen_at,
    MAX(deleted_at) AS deleted_at,
    CASE
      WHEN COUNT(deleted_at) > 0
      THEN MAX(CASE WHEN deleted_at IS NULL THEN first_seen_at END)
    END AS recreated_at,
    COUNT(CASE WHEN deleted_at IS NULL THEN 1 END) AS there
  FROM topics
  GROUP BY
    topic
), told AS (
  SELECT
    p.offsets_partition,
    p.group_id,
    p.topic,
    p.partition,
    CASE WHEN c.committed_offset >= 0 THEN c.committed_offset END AS committed_offset,
    c.commit_timestamp,
    c.record_timestamp,
    c.topic_id,
    g.group_type,
    g.state,
    o.member_id,
    m.client_id,
    m.client_host,
    e.topic_id AS present_id,
    e.sampled_at,
    LEAST(now_at, COALESCE(y.as_of, now_at), COALESCE(e.sampled_at, now_at)) AS as_of,
    NOT y.stale_reason IS NULL OR NOT e.stale_reason IS NULL AS is_stale,
    CASE WHEN e.error IS NULL THEN e.high_watermark END AS log_end_offset,
    CASE WHEN e.error IS NULL THEN COALESCE(e.readable_end, e.high_watermark) END AS readable_end,
    CASE WHEN e.error IS NULL THEN e.last_stable_offset END AS last_stable_offset,
    CASE WHEN e.error IS NULL THEN e.log_start_offset END AS log_start_offset,
    CASE
      WHEN g.group_type = 'Share'
      THEN 'share group: its offsets are in __share_group_state'
      WHEN c.group_id IS NULL
      THEN 'no offset: ' || COALESCE(
        r.reason,
        CASE
          WHEN f.filters IS NULL
          THEN 'never committed'
          ELSE 'never committed, or skipped by the filters'
        END
      )
      WHEN c.committed_offset < 0
      THEN 'no offset: ' || TRY_CAST(c.committed_offset AS TEXT) || ' was committed'
      WHEN n.there = 0
      THEN 'no end: the topic was deleted'
      WHEN c.topic_id <> e.topic_id AND c.record_timestamp > e.sampled_at
      THEN 'no end: the topic was recreated after the last sample'
      WHEN e.topic IS NULL
      THEN 'no end: not sampled'
      WHEN NOT e.error IS NULL
      THEN 'no end: ' || e.error
      WHEN e.high_watermark IS NULL
      THEN 'no end: not sampled'
    END AS reason
  FROM places AS p
  CROSS JOIN clock
  LEFT JOIN freshness AS y
    ON y.offsets_partition = p.offsets_partition
  LEFT JOIN committed_offsets AS c
    ON c.offsets_partition = p.offsets_partition
    AND c.group_id = p.group_id
    AND c.topic = p.topic
    AND c.partition = p.partition
  LEFT JOIN partition_ends AS e
    ON e.topic = p.topic AND e.partition = p.partition
  LEFT JOIN named AS n
    ON n.topic = p.topic
  LEFT JOIN offsets_partitions AS f
    ON f.offsets_partition = p.offsets_partition
  LEFT JOIN groups AS g
    ON g.offsets_partition = p.offsets_partition AND g.group_id = p.group_id
  LEFT JOIN assigned AS o
    ON o.offsets_partition = p.offsets_partition
    AND o.group_id = p.group_id
    AND o.topic = p.topic
    AND o.partition = p.partition
  LEFT JOIN group_members AS m
    ON m.offsets_partition = o.offsets_partition
    AND m.group_id = o.group_id
    AND m.member_id = o.member_id
  LEFT JOIN last_deletions AS r
    ON r.offsets_partition = p.offsets_partition
    AND r.group_id = p.group_id
    AND r.topic = p.topic
    AND r.partition = p.partition
)
SELECT
  group_id,
  topic,
  partition,
  committed_offset,
  log_end_offset,
  CASE
    WHEN reason IS NULL
    THEN GREATEST(0, readable_end - GREATEST(committed_offset, log_start_offset))
  END AS lag,
  CASE
    WHEN reason IS NULL AND NOT last_stable_offset IS NULL
    THEN GREATEST(
      0,
      LEAST(last_stable_offset, readable_end) - GREATEST(committed_offset, log_start_offset)
    )
  END AS lag_read_committed,
  CASE
    WHEN reason IS NULL AND NOT log_start_offset IS NULL
    THEN GREATEST(0, log_start_offset - committed_offset)
  END AS messages_lost,
  CASE
    WHEN reason IS NULL
    THEN TRY_CAST(GREATEST(0, readable_end - committed_offset) AS DOUBLE) / NULLIF(TRY_CAST(NULLIF(log_end_offset - log_start_offset, 0) AS DOUBLE), 0)
  END AS retention_used,
  COALESCE(reason IS NULL AND committed_offset < log_start_offset, FALSE) AS is_truncated,
  COALESCE(
    topic_id <> present_id AND NOT COALESCE(record_timestamp > sampled_at, FALSE),
    FALSE
  ) AS is_recreated,
  COALESCE(
    reason IS NULL
    AND committed_offset > log_end_offset
    AND record_timestamp < sampled_at - INTERVAL '1' MINUTE,
    FALSE
  ) AS is_beyond_end,
  reason,
  commit_timestamp,
  sampled_at,
  member_id,
  client_id,
  client_host,
  state AS group_state,
  offsets_partition,
  as_of,
  is_stale
FROM told
