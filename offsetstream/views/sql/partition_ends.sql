-- Helper: the partitions of existing topics, by name, with their newest sample. If a topic was recreated, the current one.
--
--   topic STRING: Topic
--   topic_id STRING: Topic id; null if unknown
--   partition INT: Partition of the topic
--   leader_id INT: Broker that led the partition at the last successful sample
--   log_start_offset BIGINT: First offset of the log
--   high_watermark BIGINT: End offset for read_uncommitted (high watermark)
--   last_stable_offset BIGINT: End offset for read_committed (last stable offset)
--   readable_end BIGINT: No record of a committed transaction is at or after this offset; null if nobody has read there
--   open_transaction STRING: Transactional id of the open transaction at last_stable_offset, if known
--   open_transaction_since TIMESTAMP: Time at which that transaction started
--   sampled_at TIMESTAMP: Time of the sample
--   changed_at TIMESTAMP: Time of the first sample with these values
--   error STRING: Why the last sample failed
--   stale_reason STRING: That the sample is too old to describe the present, and its age; null if it is not
WITH ranked AS (
  SELECT p.topic, p.topic_id, p.partition, p.leader_id, p.log_start_offset, p.high_watermark, p.last_stable_offset, p.readable_end, p.open_transaction, p.open_transaction_since, p.sampled_at, p.changed_at, p.error,
         t.deleted_at,
         row_number() OVER (
           PARTITION BY p.topic, p.partition
           ORDER BY CASE WHEN t.deleted_at IS NULL THEN 0 ELSE 1 END NULLS FIRST, CASE WHEN p.error IS NULL THEN 0 ELSE 1 END NULLS FIRST,
                    coalesce(unix_micros(p.sampled_at), 0) DESC, coalesce(p.topic_id, '') NULLS FIRST) AS nth
  FROM topic_partitions AS p LEFT JOIN topics AS t ON t.topic_id = p.topic_id
)
SELECT topic, topic_id, partition, leader_id, log_start_offset, high_watermark, last_stable_offset, readable_end, open_transaction, open_transaction_since, sampled_at, changed_at, error,
       CASE WHEN CAST(unix_micros(now_at) - unix_micros(sampled_at) AS DOUBLE) > max_age_seconds * CAST(1000000 AS DOUBLE)
            THEN 'its end has been unknown for the last ' || CAST((unix_micros(now_at) - unix_micros(sampled_at)) div 1000000 AS STRING) || ' s' END AS stale_reason
FROM ranked CROSS JOIN clock CROSS JOIN max_age WHERE nth = 1 AND deleted_at IS NULL
