-- Reads: offsets_partitions, partition_events
SELECT
  e.event_at,
  e.event,
  e.offsets_partition,
  e.previous_coordinator_id,
  e.coordinator_id,
  e.previous_coordinator_epoch,
  e.coordinator_epoch,
  p.groups_count,
  p.offsets_count,
  (
    EPOCH_US(
      LEAD(e.event_at) OVER (
        PARTITION BY e.offsets_partition
        ORDER BY e.event_at NULLS FIRST, COALESCE(e.coordinator_epoch, -1) NULLS FIRST
      )
    ) - EPOCH_US(e.event_at)
  ) // 1000 AS milliseconds_until_next,
  COUNT(*) OVER (PARTITION BY e.offsets_partition) AS moves_of_partition
FROM partition_events AS e
LEFT JOIN offsets_partitions AS p
  ON p.offsets_partition = e.offsets_partition
WHERE
  e.event IN ('coordinator moved', 'leader epoch changed')
