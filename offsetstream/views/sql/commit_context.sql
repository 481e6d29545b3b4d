-- Helper: every commit and tombstone with the state of the group at that record, in log order, independent of clocks.
--
--   log_id INT: Log of the offsets partition
--   offsets_partition INT: Offsets partition of the group
--   record_offset BIGINT: Offset of the record
--   group_type STRING: Type of the group at that record; null if it had none
--   group_state STRING: State of the group at that record, Gone, no members ever, or unknown if the history is not decoded
--   member_count INT: Number of members at that record; null if the history is not decoded
--   group_epoch INT: Generation or epoch at that record
--   has_owners BOOLEAN: Whether the records show which member owns which partition
WITH merged AS (
  SELECT log_id, offsets_partition, record_offset, group_id, 1 AS is_commit, CAST(NULL AS BIGINT) AS change_offset FROM offset_commits
  UNION ALL
  SELECT log_id, offsets_partition, record_offset, group_id, 0, record_offset FROM group_history
), placed AS (
  SELECT log_id, offsets_partition, record_offset, group_id, is_commit,
         max(change_offset) OVER (PARTITION BY log_id, offsets_partition, group_id ORDER BY record_offset NULLS FIRST
           ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS change_offset
  FROM merged
)
SELECT p.log_id, p.offsets_partition, p.record_offset, g.group_type,
       CASE WHEN d.decoded_from_offset IS NULL OR p.record_offset < d.decoded_from_offset THEN 'unknown'
            WHEN g.is_removed THEN 'Gone' ELSE coalesce(g.state, 'no members ever') END AS group_state,
       CASE WHEN d.decoded_from_offset IS NULL OR p.record_offset < d.decoded_from_offset THEN NULL
            WHEN g.is_removed THEN 0 ELSE coalesce(g.member_count, 0) END AS member_count,
       coalesce(g.generation, g.group_epoch) AS group_epoch,
       coalesce(g.group_type = 'Consumer' OR (g.group_type = 'Classic' AND g.protocol_type = 'consumer'), false) AS has_owners
FROM placed AS p
LEFT JOIN group_history AS g
  ON g.log_id = p.log_id AND g.offsets_partition = p.offsets_partition AND g.group_id = p.group_id AND g.record_offset = p.change_offset
LEFT JOIN decoded_logs AS d ON d.log_id = p.log_id AND d.offsets_partition = p.offsets_partition
WHERE p.is_commit = 1
