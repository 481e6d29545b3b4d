-- One row per committed offset that no consumer can use as it is, with the reason.
--
--   offsets_partition INT: Offsets partition that contains the offset
--   group_id STRING: Group id
--   topic STRING: Topic
--   partition INT: Partition of the topic
--   committed_offset BIGINT: Committed offset
--   commit_timestamp TIMESTAMP: Time of the commit
--   reason STRING: Why it cannot be used
--   messages_lost BIGINT: Messages that were deleted before the group read them; null for other reasons
--   deleted_at TIMESTAMP: Time at which the job first missed a topic of this name
--   topic_id STRING: Topic id of the commit; null if it has none
--   present_topic_id STRING: Id of the topic that has this name now
--   as_of TIMESTAMP: Time up to which the data is complete: the earlier of the last check of the group's offsets partition and the last sample of the end offset
--   is_stale BOOLEAN: Whether as_of is too old to describe the present
WITH
-- @include named
, told AS (
  SELECT c.offsets_partition, c.group_id, c.topic, c.partition, c.committed_offset, c.commit_timestamp, c.topic_id, n.deleted_at,
         coalesce(n.topic_id, e.topic_id) AS present_topic_id,
         CASE
           WHEN NOT c.in_coordinator_partition THEN 'not in the partition of its coordinator: no broker serves it'
           WHEN c.committed_offset < 0 THEN 'no offset: ' || CAST(c.committed_offset AS STRING) || ' was committed'
           WHEN n.there = 0 AND (e.topic IS NULL OR e.error IS NOT NULL) THEN 'the topic was deleted'
           WHEN n.topic IS NULL AND e.error = 'UNKNOWN_TOPIC_OR_PARTITION' THEN 'the topic is unknown to the cluster'
           -- A later commit than the job's last check may belong to a topic or partition that the job has not seen yet.
           WHEN c.record_timestamp > coalesce(n.last_seen_at, e.sampled_at) AND (
             c.topic_id <> coalesce(n.topic_id, e.topic_id) OR c.partition >= n.partitions) THEN NULL
           WHEN c.topic_id <> coalesce(n.topic_id, e.topic_id) THEN 'the topic was recreated'
           WHEN c.partition >= n.partitions THEN 'the topic has fewer partitions'
           WHEN e.error IS NULL AND c.committed_offset > e.high_watermark AND c.record_timestamp < e.sampled_at - INTERVAL '1' MINUTE
             THEN 'beyond the end of the log'
           WHEN e.error IS NULL AND c.committed_offset < e.log_start_offset THEN 'before the start of the log: messages were deleted unread'
         END AS reason,
         e.log_start_offset, least(now_at, coalesce(f.as_of, now_at), coalesce(e.sampled_at, now_at)) AS as_of,
         f.stale_reason IS NOT NULL OR e.stale_reason IS NOT NULL AS is_stale
  FROM committed_offsets AS c CROSS JOIN clock
  LEFT JOIN freshness AS f ON f.offsets_partition = c.offsets_partition
  LEFT JOIN named AS n ON n.topic = c.topic
  LEFT JOIN partition_ends AS e ON e.topic = c.topic AND e.partition = c.partition
)
SELECT offsets_partition, group_id, topic, partition, committed_offset, commit_timestamp, reason,
       CASE WHEN reason = 'before the start of the log: messages were deleted unread' THEN log_start_offset - committed_offset END AS messages_lost,
       deleted_at, topic_id, present_topic_id, as_of, is_stale
FROM told WHERE reason IS NOT NULL
