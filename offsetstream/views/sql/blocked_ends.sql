-- Helper: the last stable offsets that an open transaction held below the end of a log, and since when, as far as samples tell.
--
--   topic STRING: Topic
--   topic_id STRING: Topic id; null where it is not known
--   partition INT: Partition of the topic
--   last_stable_offset BIGINT: End for read_committed
--   blocked_since TIMESTAMP: Time of the first sample that had it so
SELECT topic, topic_id, partition, last_stable_offset, min(sampled_at) AS blocked_since
FROM (
  SELECT topic, topic_id, partition, last_stable_offset, sampled_at FROM end_offsets WHERE last_stable_offset < high_watermark
  UNION ALL
  SELECT topic, topic_id, partition, last_stable_offset, changed_at FROM topic_partitions WHERE last_stable_offset < high_watermark AND error IS NULL
) AS h
GROUP BY topic, topic_id, partition, last_stable_offset
