-- Every partition that was assigned to a member, was its target, or was waiting to be revoked at an instant (:at). Where the history does
-- not reach back that far, rows with unknown_reason replace the assignments. An open transaction at that time blocks the records after it
-- in its offsets partition, as it did in the tables. This includes commits of other groups that the coordinator had already applied.
--
--   offsets_partition INT: Offsets partition of the group
--   group_id STRING: Group id; null in a row that marks a complete offsets partition as unknown
--   member_id STRING: Member id
--   kind STRING: assigned, target, pending_revocation, active, standby or warmup
--   subtopology_id STRING: Subtopology of a streams task
--   topic_id STRING: Topic id; null where the record names the topic
--   topic STRING: Topic: the present name of the topic id, or the id if the name is unknown
--   partition INT: Partition of the topic, or number of the streams task
--   assignment_epoch INT: Epoch at which the partition was assigned
--   record_offset BIGINT: Offset of the record that assigned it
--   record_timestamp TIMESTAMP: Timestamp of that record
--   log_id INT: Log of the offsets partition, as in the history
--   unknown_before TIMESTAMP: The history lacks records before this time; null in rows of assignments
--   unknown_reason STRING: Why the assignments at that time are unknown; null in rows of assignments
WITH
-- @include cuts
,
-- @include decoded_cuts
, numbered AS (
  SELECT h.offsets_partition, h.group_id, h.member_id, h.kind, h.subtopology_id, h.topic_id, coalesce(t.topic, h.topic) AS topic, h.partition,
         h.assignment_epoch, h.record_offset, h.record_timestamp, h.log_id, h.change,
         row_number() OVER (
           PARTITION BY h.offsets_partition, h.group_id, h.member_id, h.kind, h.subtopology_id, coalesce(h.topic_id, h.topic), h.partition
           ORDER BY h.record_offset DESC, CASE WHEN h.change = 'revoked' THEN 1 ELSE 0 END NULLS FIRST) AS nth
  FROM assignment_history AS h
  JOIN cuts AS k ON k.offsets_partition = h.offsets_partition AND k.log_id = h.log_id
  LEFT JOIN topics AS t ON t.topic_id = h.topic_id
  LEFT JOIN undecoded AS u ON u.offsets_partition = h.offsets_partition
  WHERE u.offsets_partition IS NULL AND (k.cut_offset IS NULL OR h.record_offset < k.cut_offset)
)
SELECT offsets_partition, group_id, member_id, kind, subtopology_id, topic_id, topic, partition, assignment_epoch, record_offset, record_timestamp,
       log_id, CAST(NULL AS TIMESTAMP) AS unknown_before, CAST(NULL AS STRING) AS unknown_reason
FROM numbered WHERE nth = 1 AND change <> 'revoked'
UNION ALL
SELECT offsets_partition, group_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, unknown_before, unknown_reason
FROM undecoded_groups
