-- Reads: clock, committed_offsets, freshness, partition_ends, topics
WITH named AS (
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
    c.offsets_partition,
    c.group_id,
    c.topic,
    c.partition,
    c.committed_offset,
    c.commit_timestamp,
    c.topic_id,
    n.deleted_at,
    COALESCE(n.topic_id, e.topic_id) AS present_topic_id,
    CASE
      WHEN NOT c.in_coordinator_partition
      THEN 'not in the partition of its coordinator: no broker serves it'
      WHEN c.committed_offset < 0
      THEN 'no offset: ' || TRY_CAST(c.committed_offset AS TEXT) || ' was committed'
      WHEN n.there = 0 AND (
        e.topic IS NULL OR NOT e.error IS NULL
      )
      THEN 'the topic was deleted'
      WHEN n.topic IS NULL AND e.error = 'UNKNOWN_TOPIC_OR_PARTITION'
      THEN 'the topic is unknown to the cluster'
      WHEN c.record_timestamp > COALESCE(n.last_seen_at, e.sampled_at)
      AND (
        c.topic_id <> COALESCE(n.topic_id, e.topic_id) OR c.partition >= n.partitions
      )
      THEN NULL
      WHEN c.topic_id <> COALESCE(n.topic_id, e.topic_id)
      THEN 'the topic was recreated'
      WHEN c.partition >= n.partitions
      THEN 'the topic has fewer partitions'
      WHEN e.error IS NULL
      AND c.committed_offset > e.high_watermark
      AND c.record_timestamp < e.sampled_at - INTERVAL '1' MINUTE
      THEN 'beyond the end of the log'
      WHEN e.error IS NULL AND c.committed_offset < e.log_start_offset
      THEN 'before the start of the log: messages were deleted unread'
    END AS reason,
    e.log_start_offset,
    LEAST(now_at, COALESCE(f.as_of, now_at), COALESCE(e.sampled_at, now_at)) AS as_of,
    NOT f.stale_reason IS NULL OR NOT e.stale_reason IS NULL AS is_stale
  FROM committed_offsets AS c
  CROSS JOIN clock
  LEFT JOIN freshness AS f
    ON f.offsets_partition = c.offsets_partition
  LEFT JOIN named AS n
    ON n.topic = c.topic
  LEFT JOIN partition_ends AS e
    ON e.topic = c.topic AND e.partition = c.partition
)
SELECT
  offsets_partition,
  group_id,
  topic,
  partition,
  committed_offset,
  commit_timestamp,
  reason,
  CASE
    WHEN reason = 'before the start of the log: messages were deleted unread'
    THEN log_start_offset - committed_offset
  END AS messages_lost,
  deleted_at,
  topic_id,
  present_topic_id,
  as_of,
  is_stale
FROM told
WHERE
  NOT reason IS NULL
