-- Reads: assignment_history, clock, freshness, member_history, offsets_partitions, topics
WITH named AS (
  SELECT
    h.log_id,
    h.offsets_partition,
    h.group_id,
    h.member_id,
    h.kind,
    h.subtopology_id,
    h.topic_id,
    COALESCE(t.topic, h.topic) AS topic,
    COALESCE(h.topic_id, h.topic) AS topic_key,
    h.partition,
    h.change,
    h.epoch,
    h.record_offset,
    h.record_timestamp
  FROM assignment_history AS h
  LEFT JOIN topics AS t
    ON t.topic_id = h.topic_id
), stretched AS (
  SELECT
    n.*,
    SUM(CASE WHEN change = 'assigned' THEN 1 ELSE 0 END) OVER (
      PARTITION BY log_id, offsets_partition, group_id, member_id, kind, subtopology_id, topic_key, partition
      ORDER BY record_offset NULLS FIRST, CASE WHEN change = 'revoked' THEN 0 ELSE 1 END NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS stretch
  FROM named AS n
), folded AS (
  SELECT
    log_id,
    offsets_partition,
    group_id,
    member_id,
    kind,
    subtopology_id,
    MAX(topic_id) AS topic_id,
    MAX(topic) AS topic,
    topic_key,
    partition,
    stretch,
    MIN(CASE WHEN change <> 'revoked' THEN record_offset END) AS from_record_offset,
    MIN(CASE WHEN change <> 'revoked' THEN record_timestamp END) AS assigned_at,
    MAX(CASE WHEN change = 'revoked' THEN record_offset END) AS to_record_offset,
    MAX(CASE WHEN change = 'revoked' THEN record_timestamp END) AS revoked_at,
    MIN(CASE WHEN change <> 'revoked' THEN epoch END) AS assigned_in_epoch,
    MAX(CASE WHEN change = 'revoked' THEN epoch END) AS revoked_in_epoch
  FROM stretched
  GROUP BY
    log_id,
    offsets_partition,
    group_id,
    member_id,
    kind,
    subtopology_id,
    topic_key,
    partition,
    stretch
), known AS (
  SELECT
    log_id,
    offsets_partition,
    group_id,
    member_id,
    MIN(client_id) AS client_id,
    MIN(client_host) AS client_host,
    MIN(group_instance_id) AS group_instance_id
  FROM member_history
  GROUP BY
    log_id,
    offsets_partition,
    group_id,
    member_id
), lasting AS (
  SELECT
    f.*,
    f.revoked_at IS NULL AND COALESCE(f.log_id = p.log_id, TRUE) AS is_current,
    CASE
      WHEN f.revoked_at IS NULL AND COALESCE(f.log_id = p.log_id, TRUE)
      THEN LEAST(now_at, r.as_of)
      ELSE f.revoked_at
    END AS until_at
  FROM folded AS f
  CROSS JOIN clock
  LEFT JOIN freshness AS r
    ON r.offsets_partition = f.offsets_partition
  LEFT JOIN offsets_partitions AS p
    ON p.offsets_partition = f.offsets_partition
)
SELECT
  f.log_id,
  f.offsets_partition,
  f.group_id,
  f.topic_id,
  f.topic,
  f.partition,
  f.kind,
  f.subtopology_id,
  f.member_id,
  w.client_id,
  w.client_host,
  w.group_instance_id,
  f.assigned_at,
  f.revoked_at,
  f.is_current,
  CASE
    WHEN f.until_at >= f.assigned_at
    THEN (
      EPOCH_US(f.until_at) - EPOCH_US(f.assigned_at)
    ) // 1000
  END AS milliseconds,
  f.assigned_in_epoch,
  f.revoked_in_epoch,
  f.from_record_offset,
  f.to_record_offset
FROM lasting AS f
LEFT JOIN known AS w
  ON w.log_id = f.log_id
  AND w.offsets_partition = f.offsets_partition
  AND w.group_id = f.group_id
  AND w.member_id = f.member_id
