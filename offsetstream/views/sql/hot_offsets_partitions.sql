-- One row per offsets partition: records and bytes of the last day, and the groups that wrote them.
--
--   offsets_partition INT: Offsets partition
--   coordinator_id INT: Broker that coordinates the groups of this partition
--   records BIGINT: Records in the last day
--   commits BIGINT: Number of these records that are commits or offset tombstones
--   value_bytes BIGINT: Size of their values in bytes
--   active_groups BIGINT: Number of groups that wrote them
--   busiest_group STRING: Group with the most records
--   busiest_records BIGINT: Number of records of that group
--   share DOUBLE: This partition's share of the records of all partitions
--   log_offsets BIGINT: Offsets from the start of the log to the last applied record
--   blocked_offsets BIGINT: Number of offsets that an open transaction blocks
--   last_stable_offset_since TIMESTAMP: Time since which the transaction blocks them
WITH
-- @include repeated
, repeated_records AS (
  SELECT DISTINCT h.log_id, h.offsets_partition, h.record_offset
  FROM group_records AS h
  JOIN group_records AS n
    ON n.offsets_partition = h.offsets_partition AND n.record_offset = h.record_offset AND n.record_timestamp = h.record_timestamp
  WHERE n.log_id > 0 AND n.log_id > h.log_id
), recent AS (
  SELECT h.offsets_partition, h.group_id, 1 AS is_commit, coalesce(h.value_bytes, 0) AS value_bytes
  FROM offset_commits AS h CROSS JOIN clock
  LEFT JOIN repeated AS r ON r.log_id = h.log_id AND r.offsets_partition = h.offsets_partition AND r.record_offset = h.record_offset
  WHERE r.record_offset IS NULL AND h.record_timestamp >= since_at
  UNION ALL
  SELECT h.offsets_partition, h.group_id, 0, coalesce(h.value_bytes, 0)
  FROM group_records AS h CROSS JOIN clock
  LEFT JOIN repeated_records AS r ON r.log_id = h.log_id AND r.offsets_partition = h.offsets_partition AND r.record_offset = h.record_offset
  WHERE r.record_offset IS NULL AND h.record_timestamp >= since_at
), by_group AS (
  SELECT offsets_partition, group_id, count(*) AS records, sum(is_commit) AS commits, sum(value_bytes) AS value_bytes
  FROM recent GROUP BY offsets_partition, group_id
), ranked AS (
  SELECT b.*, row_number() OVER (PARTITION BY offsets_partition ORDER BY records DESC, group_id NULLS FIRST) AS place FROM by_group AS b
), summed AS (
  SELECT offsets_partition, CAST(sum(records) AS BIGINT) AS records, CAST(sum(commits) AS BIGINT) AS commits,
         CAST(sum(value_bytes) AS BIGINT) AS value_bytes, count(*) AS active_groups,
         max(CASE WHEN place = 1 THEN group_id END) AS busiest_group, max(CASE WHEN place = 1 THEN records END) AS busiest_records
  FROM ranked GROUP BY offsets_partition
)
SELECT p.offsets_partition, p.coordinator_id, coalesce(s.records, 0) AS records, coalesce(s.commits, 0) AS commits,
       coalesce(s.value_bytes, 0) AS value_bytes, coalesce(s.active_groups, 0) AS active_groups, s.busiest_group, s.busiest_records,
       CAST(coalesce(s.records, 0) AS DOUBLE) / CAST(nullif(CAST(sum(s.records) OVER () AS BIGINT), 0) AS DOUBLE) AS share,
       p.next_offset - p.log_start_offset AS log_offsets, p.high_watermark - p.last_stable_offset AS blocked_offsets, p.last_stable_offset_since
FROM offsets_partitions AS p LEFT JOIN summed AS s ON s.offsets_partition = p.offsets_partition
