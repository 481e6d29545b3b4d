-- Helper: why an assigned partition has no committed offset: the last deletion of its offset, if there was one.
--
--   offsets_partition INT: Offsets partition of the group
--   group_id STRING: Group id
--   topic STRING: Topic
--   partition INT: Partition of the topic
--   reason STRING: Why the offset was deleted
WITH empty AS (
  SELECT DISTINCT a.offsets_partition, a.group_id, coalesce(t.topic, a.topic) AS topic, a.partition
  FROM member_assignments AS a
  LEFT JOIN topics AS t ON t.topic_id = a.topic_id
  LEFT JOIN committed_offsets AS c
    ON c.offsets_partition = a.offsets_partition AND c.group_id = a.group_id AND c.topic = coalesce(t.topic, a.topic) AND c.partition = a.partition
  WHERE a.in_coordinator_partition AND a.kind = 'assigned' AND coalesce(t.topic, a.topic) IS NOT NULL AND c.group_id IS NULL
), ranked AS (
  SELECT h.log_id, h.offsets_partition, h.group_id, h.topic, h.partition, h.record_offset, h.record_timestamp, h.is_tombstone,
         row_number() OVER (PARTITION BY h.offsets_partition, h.group_id, h.topic, h.partition ORDER BY h.log_id DESC, h.record_offset DESC) AS nth
  FROM empty AS e
  JOIN offset_commits AS h
    ON h.offsets_partition = e.offsets_partition AND h.group_id = e.group_id AND h.topic = e.topic AND h.partition = e.partition
), wanted AS (
  SELECT log_id, offsets_partition, group_id, topic, partition, record_offset, record_timestamp FROM ranked WHERE nth = 1 AND is_tombstone
),
-- @include deletions
SELECT offsets_partition, group_id, topic, partition, reason FROM deletions
