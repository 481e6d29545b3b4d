-- Every committed offset at an instant (:at), as a reader of committed records sees it. Where the history does not reach back that far,
-- rows with unknown_reason replace the offsets. An open transaction at that time blocks the records after it in its offsets partition, as
-- it did in the tables. This includes commits of other groups that the coordinator had already applied.
--
--   offsets_partition INT: Offsets partition of the group
--   group_id STRING: Group id; null in a row that marks a complete offsets partition as unknown
--   topic STRING: Topic
--   partition INT: Partition of the topic
--   committed_offset BIGINT: Committed offset
--   leader_epoch INT: Leader epoch that the client sent with the commit
--   metadata STRING: Metadata text that the client sent with the commit
--   commit_timestamp TIMESTAMP: Time of the commit
--   commit_timestamp_ms BIGINT: The same, in milliseconds since 1970
--   expire_timestamp TIMESTAMP: Time at which the offset expires, if the client set one
--   expire_timestamp_ms BIGINT: The same, in milliseconds since 1970
--   topic_id STRING: Topic id; null if the commit has none
--   record_offset BIGINT: Offset of the record in its offsets partition
--   record_timestamp TIMESTAMP: Timestamp that the broker gave the record
--   log_id INT: Log of the offsets partition, as in the history
--   unknown_before TIMESTAMP: The history lacks records before this time; null in rows of offsets
--   unknown_reason STRING: Why the offsets at that time are unknown; null in rows of offsets
WITH
-- @include cuts
, newest AS (
  -- Find these first, so that files without any of them are skipped.
  SELECT c.log_id, c.offsets_partition, c.group_id, c.topic, c.partition, max(c.record_offset) AS record_offset
  FROM offset_commits AS c
  JOIN cuts AS k ON k.offsets_partition = c.offsets_partition AND k.log_id = c.log_id
  LEFT JOIN gaps AS g ON g.offsets_partition = c.offsets_partition
  WHERE g.offsets_partition IS NULL AND (k.cut_offset IS NULL OR c.record_offset < k.cut_offset)
  GROUP BY c.log_id, c.offsets_partition, c.group_id, c.topic, c.partition
)
SELECT c.offsets_partition, c.group_id, c.topic, c.partition, c.committed_offset, c.leader_epoch, c.metadata, c.commit_timestamp, c.commit_timestamp_ms,
       c.expire_timestamp, c.expire_timestamp_ms, c.topic_id, c.record_offset, c.record_timestamp, c.log_id, CAST(NULL AS TIMESTAMP) AS unknown_before,
       CAST(NULL AS STRING) AS unknown_reason
FROM newest AS n
JOIN offset_commits AS c ON c.log_id = n.log_id AND c.offsets_partition = n.offsets_partition AND c.record_offset = n.record_offset
WHERE NOT c.is_tombstone
UNION ALL
SELECT offsets_partition, group_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, unknown_before, unknown_reason
FROM unknowns
