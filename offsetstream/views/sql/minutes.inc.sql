-- The minutes since clock.since_at in which a cell was committed or its partition was sampled, each with the commit and the end offset that
-- were current when it ended. The last ones before since_at give the state at the start.
steps AS (
  SELECT h.offsets_partition, h.group_id, h.topic, h.partition, h.log_id, h.record_offset, h.committed_offset, h.is_tombstone, h.record_timestamp,
         date_trunc('MINUTE', greatest(h.record_timestamp, since_at)) AS minute
  FROM offset_commits AS h CROSS JOIN clock WHERE h.record_timestamp <= now_at
), last_steps AS (
  SELECT s.*, row_number() OVER (PARTITION BY offsets_partition, group_id, topic, partition, minute ORDER BY log_id DESC, record_offset DESC) AS nth
  FROM steps AS s
), committed AS (
  SELECT * FROM last_steps WHERE nth = 1
), looks AS (
  SELECT i.topic, i.partition, i.sampled_at, i.held_until, i.known_until, i.high_watermark, i.log_start_offset, i.last_stable_offset, i.readable_end, i.topic_id,
         date_trunc('MINUTE', greatest(i.sampled_at, since_at)) AS minute
  FROM end_intervals AS i CROSS JOIN clock WHERE i.sampled_at <= now_at
), last_looks AS (
  SELECT l.*, row_number() OVER (PARTITION BY topic, partition, minute ORDER BY sampled_at DESC, coalesce(topic_id, '') NULLS FIRST) AS nth FROM looks AS l
), sampled AS (
  SELECT * FROM last_looks WHERE nth = 1
), first_commits AS (
  SELECT offsets_partition, group_id, topic, partition, min(minute) AS minute FROM committed GROUP BY offsets_partition, group_id, topic, partition
), busy AS (
  SELECT offsets_partition, group_id, topic, partition, minute FROM committed
  UNION
  SELECT f.offsets_partition, f.group_id, f.topic, f.partition, s.minute
  FROM first_commits AS f JOIN sampled AS s ON s.topic = f.topic AND s.partition = f.partition AND s.minute >= f.minute
)
