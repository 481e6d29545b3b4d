-- One row per period in which a partition was assigned to a member, was its target, or was waiting to be revoked from it.
--
--   log_id INT: Log of the offsets partition
--   offsets_partition INT: Offsets partition of the group
--   group_id STRING: Group id
--   topic_id STRING: Topic id; null where the record names the topic
--   topic STRING: Topic: the present name of the topic id
--   partition INT: Partition of the topic, or number of a streams task
--   kind STRING: assigned, target, pending_revocation, active, standby or warmup
--   subtopology_id STRING: Subtopology of a streams task
--   member_id STRING: Member id
--   client_id STRING: Client id of that member
--   client_host STRING: Host of that member
--   group_instance_id STRING: Instance id of a static member
--   assigned_at TIMESTAMP: Start of the period
--   revoked_at TIMESTAMP: End of the period; null if it lasts, or the end is unknown
--   is_current BOOLEAN: Whether the period lasts
--   milliseconds BIGINT: Length of the period in milliseconds, so far if it lasts; null if clocks differ and it would be negative
--   assigned_in_epoch INT: Generation or group epoch in which it started
--   revoked_in_epoch INT: Generation or group epoch in which it ended
--   from_record_offset BIGINT: Offset of the record that started it
--   to_record_offset BIGINT: Offset of the record that ended it
WITH named AS (
  SELECT h.log_id, h.offsets_partition, h.group_id, h.member_id, h.kind, h.subtopology_id, h.topic_id, coalesce(t.topic, h.topic) AS topic,
         coalesce(h.topic_id, h.topic) AS topic_key, h.partition, h.change, h.epoch, h.record_offset, h.record_timestamp
  FROM assignment_history AS h LEFT JOIN topics AS t ON t.topic_id = h.topic_id
), stretched AS (
  SELECT n.*, sum(CASE WHEN change = 'assigned' THEN 1 ELSE 0 END) OVER (
           PARTITION BY log_id, offsets_partition, group_id, member_id, kind, subtopology_id, topic_key, partition
           ORDER BY record_offset NULLS FIRST, CASE WHEN change = 'revoked' THEN 0 ELSE 1 END NULLS FIRST ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS stretch
  FROM named AS n
), folded AS (
  SELECT log_id, offsets_partition, group_id, member_id, kind, subtopology_id, max(topic_id) AS topic_id, max(topic) AS topic, topic_key, partition,
         stretch,
         min(CASE WHEN change <> 'revoked' THEN record_offset END) AS from_record_offset,
         min(CASE WHEN change <> 'revoked' THEN record_timestamp END) AS assigned_at,
         max(CASE WHEN change = 'revoked' THEN record_offset END) AS to_record_offset,
         max(CASE WHEN change = 'revoked' THEN record_timestamp END) AS revoked_at,
         min(CASE WHEN change <> 'revoked' THEN epoch END) AS assigned_in_epoch,
         max(CASE WHEN change = 'revoked' THEN epoch END) AS revoked_in_epoch
  FROM stretched
  GROUP BY log_id, offsets_partition, group_id, member_id, kind, subtopology_id, topic_key, partition, stretch
), known AS (
  SELECT log_id, offsets_partition, group_id, member_id, min(client_id) AS client_id, min(client_host) AS client_host,
         min(group_instance_id) AS group_instance_id
  FROM member_history GROUP BY log_id, offsets_partition, group_id, member_id
), lasting AS (
  SELECT f.*, f.revoked_at IS NULL AND coalesce(f.log_id = p.log_id, true) AS is_current,
         CASE WHEN f.revoked_at IS NULL AND coalesce(f.log_id = p.log_id, true) THEN least(now_at, r.as_of) ELSE f.revoked_at END AS until_at
  FROM folded AS f CROSS JOIN clock
  LEFT JOIN freshness AS r ON r.offsets_partition = f.offsets_partition
  LEFT JOIN offsets_partitions AS p ON p.offsets_partition = f.offsets_partition
)
SELECT f.log_id, f.offsets_partition, f.group_id, f.topic_id, f.topic, f.partition, f.kind, f.subtopology_id, f.member_id, w.client_id, w.client_host,
       w.group_instance_id, f.assigned_at, f.revoked_at, f.is_current,
       CASE WHEN f.until_at >= f.assigned_at THEN (unix_micros(f.until_at) - unix_micros(f.assigned_at)) div 1000 END AS milliseconds,
       f.assigned_in_epoch, f.revoked_in_epoch, f.from_record_offset, f.to_record_offset
FROM lasting AS f
LEFT JOIN known AS w ON w.log_id = f.log_id AND w.offsets_partition = f.offsets_partition AND w.group_id = f.group_id AND w.member_id = f.member_id
