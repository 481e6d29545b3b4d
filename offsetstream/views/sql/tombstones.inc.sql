-- Of each committed offset its newest tombstone. What was deleted is another story: a group that came back begins anew.
tombstones AS (
  SELECT log_id, offsets_partition, group_id, topic, partition, max(record_offset) AS record_offset
  FROM offset_commits WHERE is_tombstone GROUP BY log_id, offsets_partition, group_id, topic, partition
)
