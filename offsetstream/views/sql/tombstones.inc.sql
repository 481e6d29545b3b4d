-- The newest tombstone of each committed offset. Commits before it do not count: a group that came back starts again.
tombstones AS (
  SELECT log_id, offsets_partition, group_id, topic, partition, max(record_offset) AS record_offset
  FROM offset_commits WHERE is_tombstone GROUP BY log_id, offsets_partition, group_id, topic, partition
)
