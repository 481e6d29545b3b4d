-- One row per deleted offset: why the broker deleted it, as far as the log shows. Needs the broker's offsets.retention.minutes.
--
--   record_timestamp TIMESTAMP: Time of the deletion
--   group_id STRING: Group id
--   topic STRING: Topic
--   partition INT: Partition of the topic
--   last_offset BIGINT: Committed offset that was deleted
--   reason STRING: expired, group deleted, topic deleted, offsets deleted, or that it is unknown
--   ms_past_due BIGINT: Milliseconds from the expiry time to the deletion; null if the offset had no expiry time
--   group_state STRING: State of the group at that record
--   group_type STRING: Type of the group at that record
--   log_id INT: Log of the offsets partition
--   offsets_partition INT: Offsets partition of the group
--   record_offset BIGINT: Offset of the record
WITH wanted AS (
  SELECT log_id, offsets_partition, group_id, topic, partition, record_offset, record_timestamp FROM offset_commits WHERE is_tombstone
),
-- @include deletions
, once AS (
  -- Records that were left of a truncated log are in the next log, too.
  SELECT d.*, row_number() OVER (PARTITION BY offsets_partition, record_offset, record_timestamp ORDER BY log_id DESC) AS nth FROM deletions AS d
)
SELECT record_timestamp, group_id, topic, partition, committed_offset AS last_offset, reason, ms_past_due, group_state, group_type, log_id,
       offsets_partition, record_offset
FROM once WHERE nth = 1
