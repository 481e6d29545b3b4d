-- Helper: last stable offsets that an open transaction kept below the end of a log, and since when, according to the samples.
--
--   topic STRING: Topic
--   topic_id STRING: Topic id; null if unknown
--   partition INT: Partition of the topic
--   last_stable_offset BIGINT: End offset for read_committed (last stable offset)
--   blocked_since TIMESTAMP: Time of the first sample with this last stable offset
SELECT topic, topic_id, partition, last_stable_offset, min(sampled_at) AS blocked_since
FROM (
  SELECT topic, topic_id, partition, last_stable_offset, sampled_at FROM end_offsets WHERE last_stable_offset < high_watermark
  UNION ALL
  SELECT topic, topic_id, partition, last_stable_offset, changed_at FROM topic_partitions WHERE last_stable_offset < high_watermark AND error IS NULL
) AS h
GROUP BY topic, topic_id, partition, last_stable_offset
