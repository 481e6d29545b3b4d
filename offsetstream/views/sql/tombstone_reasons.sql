-- One row per deleted offset: why the broker deleted it, as far as the log tells. Needs the broker's offsets.retention.minutes.
--
--   record_timestamp TIMESTAMP: Time of the deletion
--   group_id STRING: Group id
--   topic STRING: Topic
--   partition INT: Partition of the topic
--   last_offset BIGINT: Offset that was deleted
--   reason STRING: expired, group deleted, topic deleted, offsets deleted, or that it is unknown
--   ms_past_due BIGINT: How long the offset was past its time, in milliseconds; null where it had none
--   group_state STRING: State of the group then
--   group_type STRING: Type of the group then
--   log_id INT: Log of the offsets partition
--   offsets_partition INT: Offsets partition of the group
--   record_offset BIGINT: Offset of the record
WITH wanted AS (
  SELECT log_id, offsets_partition, group_id, topic, partition, record_offset, record_timestamp FROM offset_commits WHERE is_tombstone
),
-- @include deletions
, once AS (
  -- What was left of a log that was cut is in the next one, too.
  SELECT d.*, row_number() OVER (PARTITION BY offsets_partition, record_offset, record_timestamp ORDER BY log_id DESC) AS nth FROM deletions AS d
)
SELECT record_timestamp, group_id, topic, partition, committed_offset AS last_offset, reason, ms_past_due, group_state, group_type, log_id,
       offsets_partition, record_offset
FROM once WHERE nth = 1
