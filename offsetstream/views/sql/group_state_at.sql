-- Every group at an instant (:at). Groups that have only commits are Empty and simple, as in the coordinator. Where the history does not
-- reach back that far, rows with unknown_reason replace the groups. An open transaction at that time blocks the records after it in its
-- offsets partition, as it did in the tables. This includes commits of other groups that the coordinator had already applied.
--
--   offsets_partition INT: Offsets partition of the group
--   group_id STRING: Group id; null in a row that marks a complete offsets partition as unknown
--   group_type STRING: Classic, Consumer, Share or Streams
--   state STRING: State in the Admin API's spelling
--   is_simple BOOLEAN: Whether the group has only offsets: no member ever joined
--   protocol_type STRING: Protocol type of a classic group
--   protocol STRING: Protocol (assignor) that a classic group chose
--   generation INT: Generation of a classic group
--   group_epoch INT: Epoch of a consumer, share or streams group
--   assignment_epoch INT: Epoch of the group's target assignment
--   leader_member_id STRING: Member that led a classic group
--   member_count INT: Number of members
--   state_timestamp TIMESTAMP: Time at which a classic group entered its state
--   record_offset BIGINT: Offset of the record that set this state
--   record_timestamp TIMESTAMP: Timestamp of that record
--   log_id INT: Log of the offsets partition, as in the history
--   unknown_before TIMESTAMP: The history lacks records before this time; null in rows of groups
--   unknown_reason STRING: Why the groups at that time are unknown; null in rows of groups
WITH
-- @include cuts
,
-- @include decoded_cuts
, numbered AS (
  SELECT h.offsets_partition, h.group_id, h.group_type, h.state, h.is_simple, h.protocol_type, h.protocol, h.generation, h.group_epoch,
         h.assignment_epoch, h.leader_member_id, h.member_count, h.state_timestamp, h.record_offset, h.record_timestamp, h.log_id, h.is_removed,
         row_number() OVER (PARTITION BY h.offsets_partition, h.group_id ORDER BY h.record_offset DESC) AS nth
  FROM group_history AS h
  JOIN cuts AS k ON k.offsets_partition = h.offsets_partition AND k.log_id = h.log_id
  LEFT JOIN undecoded AS u ON u.offsets_partition = h.offsets_partition
  WHERE u.offsets_partition IS NULL AND (k.cut_offset IS NULL OR h.record_offset < k.cut_offset)
), recorded AS (
  SELECT * FROM numbered WHERE nth = 1
), committed AS (
  SELECT c.offsets_partition, c.group_id, c.topic, c.partition, c.record_offset, c.record_timestamp, c.log_id, c.is_tombstone,
         row_number() OVER (PARTITION BY c.offsets_partition, c.group_id, c.topic, c.partition ORDER BY c.record_offset DESC) AS nth
  FROM offset_commits AS c
  JOIN cuts AS k ON k.offsets_partition = c.offsets_partition AND k.log_id = c.log_id
  LEFT JOIN undecoded AS u ON u.offsets_partition = c.offsets_partition
  WHERE u.offsets_partition IS NULL AND (k.cut_offset IS NULL OR c.record_offset < k.cut_offset)
), with_commits AS (
  SELECT offsets_partition, group_id, log_id, max(record_offset) AS record_offset, max(record_timestamp) AS record_timestamp,
         max(CASE WHEN nth = 1 THEN record_offset END) AS live_offset
  FROM committed WHERE NOT is_tombstone GROUP BY offsets_partition, group_id, log_id
), removed AS (
  SELECT g.offsets_partition, g.group_id, max(g.record_offset) AS record_offset
  FROM group_records AS g
  JOIN cuts AS k ON k.offsets_partition = g.offsets_partition AND k.log_id = g.log_id
  WHERE g.is_tombstone AND g.key_type IN (2, 3, 11, 17) AND (k.cut_offset IS NULL OR g.record_offset < k.cut_offset)
  GROUP BY g.offsets_partition, g.group_id
), coordinators AS (
  SELECT max(group_coordinator) AS group_coordinator FROM cluster
), with_offsets AS (
  -- A commit creates a group. The new coordinator keeps it until the group's own tombstone, the classic one as long as it has an offset.
  SELECT c.offsets_partition, c.group_id, c.log_id, c.record_offset, c.record_timestamp
  FROM with_commits AS c CROSS JOIN coordinators AS k
  LEFT JOIN removed AS t ON t.offsets_partition = c.offsets_partition AND t.group_id = c.group_id
  WHERE CASE WHEN k.group_coordinator = 'classic' THEN c.live_offset IS NOT NULL
             ELSE t.record_offset IS NULL OR c.record_offset > t.record_offset END
)
SELECT offsets_partition, group_id, group_type, state, is_simple, protocol_type, protocol, generation, group_epoch, assignment_epoch,
       leader_member_id, member_count, state_timestamp, record_offset, record_timestamp, log_id, CAST(NULL AS TIMESTAMP) AS unknown_before,
       CAST(NULL AS STRING) AS unknown_reason
FROM recorded WHERE NOT is_removed
UNION ALL
SELECT o.offsets_partition, o.group_id, 'Classic', 'Empty', true, NULL, NULL, 0, NULL, NULL, NULL, 0, NULL, o.record_offset, o.record_timestamp,
       o.log_id, NULL, NULL
FROM with_offsets AS o LEFT JOIN recorded AS r ON r.offsets_partition = o.offsets_partition AND r.group_id = o.group_id
WHERE r.group_id IS NULL OR r.is_removed
UNION ALL
SELECT offsets_partition, group_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, unknown_before,
       unknown_reason
FROM undecoded_groups
