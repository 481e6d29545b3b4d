-- Why the broker deleted the offsets of the tombstones in `wanted`, as far as the log shows: from the state of the group at that record, by
-- the rules of offset expiration.
before AS (
  SELECT w.log_id, w.offsets_partition, w.record_offset, c.committed_offset, c.commit_timestamp_ms, c.expire_timestamp_ms, c.topic_id, c.is_tombstone,
         row_number() OVER (PARTITION BY w.log_id, w.offsets_partition, w.record_offset ORDER BY c.record_offset DESC) AS nth
  FROM wanted AS w
  JOIN offset_commits AS c
    ON c.log_id = w.log_id AND c.offsets_partition = w.offsets_partition AND c.group_id = w.group_id AND c.topic = w.topic
   AND c.partition = w.partition AND c.record_offset < w.record_offset
), dead AS (
  SELECT w.log_id, w.offsets_partition, w.group_id, w.topic, w.partition, w.record_offset, w.record_timestamp,
         unix_micros(w.record_timestamp) div 1000 AS record_ms, b.committed_offset, b.commit_timestamp_ms, b.expire_timestamp_ms, b.topic_id
  FROM wanted AS w
  LEFT JOIN before AS b
    ON b.log_id = w.log_id AND b.offsets_partition = w.offsets_partition AND b.record_offset = w.record_offset AND b.nth = 1 AND NOT b.is_tombstone
), removed AS (
  -- The group's own tombstone is in the same append.
  SELECT d.log_id, d.offsets_partition, d.record_offset, min(g.record_offset) AS group_offset
  FROM dead AS d
  JOIN group_records AS g
    ON g.log_id = d.log_id AND g.offsets_partition = d.offsets_partition AND g.group_id = d.group_id AND g.is_tombstone
   AND g.key_type IN (2, 3, 17) AND g.record_timestamp = d.record_timestamp AND g.record_offset > d.record_offset
  GROUP BY d.log_id, d.offsets_partition, d.record_offset
), states AS (
  SELECT d.log_id, d.offsets_partition, d.record_offset, h.group_type, h.state, h.protocol_type, h.state_timestamp, h.is_removed,
         row_number() OVER (PARTITION BY d.log_id, d.offsets_partition, d.record_offset ORDER BY h.record_offset DESC) AS nth
  FROM dead AS d
  JOIN group_history AS h
    ON h.log_id = d.log_id AND h.offsets_partition = d.offsets_partition AND h.group_id = d.group_id AND h.record_offset < d.record_offset
), memberships AS (
  SELECT log_id, offsets_partition, group_id, member_id, record_offset, change, subscribed_topics,
         lead(record_offset) OVER (PARTITION BY log_id, offsets_partition, group_id, member_id ORDER BY record_offset NULLS FIRST) AS next_offset
  FROM member_history
), subscribed AS (
  SELECT d.log_id, d.offsets_partition, d.record_offset, count(*) AS subscribers
  FROM dead AS d
  JOIN memberships AS m
    ON m.log_id = d.log_id AND m.offsets_partition = d.offsets_partition AND m.group_id = d.group_id AND m.record_offset < d.record_offset
   AND (m.next_offset IS NULL OR m.next_offset > d.record_offset) AND m.change <> 'left'
   AND contains(',' || coalesce(m.subscribed_topics, d.topic) || ',', ',' || d.topic || ',')
  GROUP BY d.log_id, d.offsets_partition, d.record_offset
), lost AS (
  SELECT d.log_id, d.offsets_partition, d.record_offset, max(t.deleted_at) AS deleted_at
  FROM dead AS d
  JOIN topics AS t
    ON t.topic = d.topic AND (d.topic_id IS NULL OR d.topic_id = t.topic_id) AND t.deleted_at IS NOT NULL
   AND d.record_timestamp >= t.last_seen_at - INTERVAL '1' MINUTE AND d.record_timestamp <= t.deleted_at + INTERVAL '10' MINUTE
  GROUP BY d.log_id, d.offsets_partition, d.record_offset
), settings AS (
  SELECT max(offsets_retention_ms) AS offsets_retention_ms FROM cluster
), due AS (
  SELECT d.*, g.group_offset, s.state, s.group_type, s.is_removed, t.deleted_at, k.offsets_retention_ms, u.decoded_from_offset,
         coalesce(m.subscribers, 0) AS subscribers,
         CASE
           WHEN coalesce(m.subscribers, 0) > 0 THEN NULL
           WHEN d.expire_timestamp_ms IS NOT NULL THEN d.expire_timestamp_ms
           WHEN s.group_type = 'Classic' AND coalesce(s.protocol_type, '') <> '' AND s.state = 'Empty' AND s.state_timestamp IS NOT NULL
             THEN unix_micros(s.state_timestamp) div 1000 + k.offsets_retention_ms
           ELSE d.commit_timestamp_ms + k.offsets_retention_ms
         END AS due_ms
  FROM dead AS d CROSS JOIN settings AS k
  LEFT JOIN removed AS g ON g.log_id = d.log_id AND g.offsets_partition = d.offsets_partition AND g.record_offset = d.record_offset
  LEFT JOIN states AS s ON s.log_id = d.log_id AND s.offsets_partition = d.offsets_partition AND s.record_offset = d.record_offset AND s.nth = 1
  LEFT JOIN subscribed AS m ON m.log_id = d.log_id AND m.offsets_partition = d.offsets_partition AND m.record_offset = d.record_offset
  LEFT JOIN lost AS t ON t.log_id = d.log_id AND t.offsets_partition = d.offsets_partition AND t.record_offset = d.record_offset
  LEFT JOIN decoded_logs AS u ON u.log_id = d.log_id AND u.offsets_partition = d.offsets_partition
), deletions AS (
  SELECT log_id, offsets_partition, group_id, topic, partition, record_offset, record_timestamp, committed_offset,
         CASE
           WHEN commit_timestamp_ms IS NULL THEN 'unknown: the history has no commit before it'
           WHEN decoded_from_offset IS NULL OR decoded_from_offset > record_offset THEN 'unknown: the history is not decoded'
           WHEN record_ms >= due_ms THEN 'expired'
           WHEN group_offset IS NOT NULL THEN 'group deleted'
           WHEN deleted_at IS NOT NULL THEN 'topic deleted'
           WHEN offsets_retention_ms IS NULL AND subscribers = 0 THEN 'expired or deleted: unknown retention'
           ELSE 'offsets deleted'
         END AS reason,
         record_ms - due_ms AS ms_past_due,
         CASE WHEN is_removed THEN 'Gone' ELSE coalesce(state, 'no members ever') END AS group_state, group_type
  FROM due
)
