-- Why the offsets of `wanted` tombstones were deleted.
deletions AS (
  SELECT offsets_partition, group_id, topic, partition, 'its offset was deleted' AS reason FROM wanted
)
