-- Helper: the cells (committed offsets) with waiting messages, according to the newest sample of the logs.
--
--   cell BIGINT: The cell, identified by its newest record
--   log_id INT: Log of the offsets partition
--   offsets_partition INT: Offsets partition of the group
--   group_id STRING: Group id
--   topic STRING: Topic
--   partition INT: Partition of the topic
--   topic_id STRING: Id of the present topic; null if unknown
--   next_to_read BIGINT: First waiting offset that the log still has
--   sampled_at TIMESTAMP: Time of the sample
--   as_of TIMESTAMP: Time up to which the data is complete
SELECT c.offsets_partition * 281474976710656 + c.record_offset AS cell, c.log_id, c.offsets_partition, c.group_id, c.topic, c.partition, e.topic_id,
       greatest(c.committed_offset, e.log_start_offset) AS next_to_read, e.sampled_at, least(now_at, e.sampled_at, coalesce(f.as_of, now_at)) AS as_of
FROM committed_offsets AS c CROSS JOIN clock
LEFT JOIN freshness AS f ON f.offsets_partition = c.offsets_partition
JOIN partition_ends AS e ON e.topic = c.topic AND e.partition = c.partition AND e.high_watermark > c.committed_offset
WHERE c.in_coordinator_partition AND c.committed_offset >= 0
