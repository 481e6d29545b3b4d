-- One row per group, topic and minute of the last day with a commit: the number of commits and of messages that they passed.
--
--   group_id STRING: Group id
--   topic STRING: Topic
--   minute TIMESTAMP: Start of the minute
--   commits BIGINT: Commits
--   partitions BIGINT: Partitions with a commit
--   messages BIGINT: Messages that the commits passed; commits of a lower offset count as 0
--   commits_without_progress BIGINT: Commits of the same offset again
--   commits_back BIGINT: Commits of a lower offset
--   value_bytes BIGINT: Size of the record values in bytes
WITH
-- @include repeated
, steps AS (
  SELECT log_id, offsets_partition, record_offset, group_id, topic, partition, commit_timestamp, value_bytes, is_tombstone,
         committed_offset - lag(committed_offset) OVER (
           PARTITION BY log_id, offsets_partition, group_id, topic, partition ORDER BY record_offset NULLS FIRST) AS moved
  FROM offset_commits
)
SELECT s.group_id, s.topic, date_trunc('MINUTE', s.commit_timestamp) AS minute, count(*) AS commits, count(DISTINCT s.partition) AS partitions,
       CAST(sum(greatest(coalesce(s.moved, 0), 0)) AS BIGINT) AS messages, count(CASE WHEN s.moved = 0 THEN 1 END) AS commits_without_progress,
       count(CASE WHEN s.moved < 0 THEN 1 END) AS commits_back, CAST(sum(s.value_bytes) AS BIGINT) AS value_bytes
FROM steps AS s CROSS JOIN clock
LEFT JOIN repeated AS r ON r.log_id = s.log_id AND r.offsets_partition = s.offsets_partition AND r.record_offset = s.record_offset
WHERE r.record_offset IS NULL AND NOT s.is_tombstone AND s.commit_timestamp >= since_at
GROUP BY s.group_id, s.topic, date_trunc('MINUTE', s.commit_timestamp)
