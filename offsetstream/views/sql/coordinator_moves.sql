-- One row per observed move of a group coordinator.
--
--   event_at TIMESTAMP: Time at which the move was observed
--   event STRING: coordinator moved or leader epoch changed
--   offsets_partition INT: Offsets partition
--   previous_coordinator_id INT: Broker before
--   coordinator_id INT: Broker after
--   previous_coordinator_epoch INT: Leader epoch before
--   coordinator_epoch INT: Leader epoch after
--   groups_count BIGINT: Number of groups in the partition at its last load or unload
--   offsets_count BIGINT: Number of committed offsets in the partition at its last load or unload
--   milliseconds_until_next BIGINT: Milliseconds until the next move; null if there was none yet
--   moves_of_partition BIGINT: Number of moves of this partition
SELECT e.event_at, e.event, e.offsets_partition, e.previous_coordinator_id, e.coordinator_id, e.previous_coordinator_epoch, e.coordinator_epoch,
       p.groups_count, p.offsets_count,
       (unix_micros(lead(e.event_at) OVER (PARTITION BY e.offsets_partition ORDER BY e.event_at NULLS FIRST, coalesce(e.coordinator_epoch, -1) NULLS FIRST))
        - unix_micros(e.event_at)) div 1000 AS milliseconds_until_next,
       count(*) OVER (PARTITION BY e.offsets_partition) AS moves_of_partition
FROM partition_events AS e
LEFT JOIN offsets_partitions AS p ON p.offsets_partition = e.offsets_partition
WHERE e.event IN ('coordinator moved', 'leader epoch changed')
