-- Helper: the commits of the waiting cells after their last deletion.
--
--   cell BIGINT: The cell, identified by its newest record
--   record_offset BIGINT: Offset of the commit's record
--   record_timestamp TIMESTAMP: Time of the record
--   committed_offset BIGINT: Committed offset
--   commit_timestamp_ms BIGINT: Time of the commit, in milliseconds since 1970
WITH
-- @include tombstones
SELECT w.cell, h.record_offset, h.record_timestamp, h.committed_offset, h.commit_timestamp_ms
FROM waiting_cells AS w
LEFT JOIN tombstones AS d
  ON d.log_id = w.log_id AND d.offsets_partition = w.offsets_partition AND d.group_id = w.group_id AND d.topic = w.topic AND d.partition = w.partition
JOIN offset_commits AS h
  ON h.log_id = w.log_id AND h.offsets_partition = w.offsets_partition AND h.group_id = w.group_id AND h.topic = w.topic
 AND h.partition = w.partition AND h.record_offset > coalesce(d.record_offset, -1)
