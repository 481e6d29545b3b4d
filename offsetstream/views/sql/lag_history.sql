-- One row per group, topic, partition and minute of the last day with a commit or a new sample: the lag at the end of that minute. Between
-- two rows the lag did not change, except that the offset may have been deleted. A partition without a usable sample has no row.
--
--   group_id STRING: Group id
--   topic STRING: Topic
--   partition INT: Partition of the topic
--   minute TIMESTAMP: Start of the minute
--   committed_offset BIGINT: Committed offset at the end of the minute
--   log_end_offset BIGINT: End offset of the log at the last sample before the end of the minute
--   lag BIGINT: Messages between the two offsets that the log still had, without transaction markers and aborted transactions, as in lag; never negative
--   messages_lost BIGINT: Messages that were deleted from the log before the group read them
--   is_committed BOOLEAN: Whether the group committed in that minute
WITH
-- @include minutes
, points AS (
  SELECT offsets_partition, group_id, topic, partition, minute FROM busy
),
-- @include standing
SELECT group_id, topic, partition, minute, committed_offset, high_watermark AS log_end_offset,
       greatest(0, coalesce(readable_end, high_watermark) - greatest(committed_offset, log_start_offset)) AS lag,
       CASE WHEN log_start_offset IS NOT NULL THEN greatest(0, log_start_offset - committed_offset) END AS messages_lost, is_committed
FROM standing WHERE NOT is_tombstone AND committed_offset >= 0 AND high_watermark IS NOT NULL
