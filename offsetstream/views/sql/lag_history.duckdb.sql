-- Reads: clock, end_intervals, offset_commits, offsets_partitions, topics
WITH steps AS (
  SELECT
    h.offsets_partition,
    h.group_id,
    h.topic,
    h.partition,
    h.log_id,
    h.record_offset,
    h.committed_offset,
    h.is_tombstone,
    h.record_timestamp,
    DATE_TRUNC('MINUTE', GREATEST(h.record_timestamp, since_at)) AS minute
  FROM offset_commits AS h
  CROSS JOIN clock
  WHERE
    h.record_timestamp <= now_at
), last_steps AS (
  SELECT
    s.*,
    ROW_NUMBER() OVER (
      PARTITION BY offsets_partition, group_id, topic, partition, minute
      ORDER BY log_id DESC, record_offset DESC
    ) AS nth
  FROM steps AS s
), committed AS (
  SELECT
    *
  FROM last_steps
  WHERE
    nth = 1
), looks AS (
  SELECT
    i.topic,
    i.partition,
    i.sampled_at,
    i.held_until,
    i.known_until,
    i.high_watermark,
    i.log_start_offset,
    i.last_stable_offset,
    i.readable_end,
    i.topic_id,
    DATE_TRUNC('MINUTE', GREATEST(i.sampled_at, since_at)) AS minute
  FROM end_intervals AS i
  CROSS JOIN clock
  WHERE
    i.sampled_at <= now_at
), last_looks AS (
  SELECT
    l.*,
    ROW_NUMBER() OVER (
      PARTITION BY topic, partition, minute
      ORDER BY sampled_at DESC, COALESCE(topic_id, '') NULLS FIRST
    ) AS nth
  FROM looks AS l
), sampled AS (
  SELECT
    *
  FROM last_looks
  WHERE
    nth = 1
), first_commits AS (
  SELECT
    offsets_partition,
    group_id,
    topic,
    partition,
    MIN(minute) AS minute
  FROM committed
  GROUP BY
    offsets_partition,
    group_id,
    topic,
    partition
), busy AS (
  SELECT
    offsets_partition,
    group_id,
    topic,
    partition,
    minute
  FROM committed
  UNION
  SELECT
    f.offsets_partition,
    f.group_id,
    f.topic,
    f.partition,
    s.minute
  FROM first_commits AS f
  JOIN sampled AS s
    ON s.topic = f.topic AND s.partition = f.partition AND s.minute >= f.minute
), points AS (
  SELECT
    offsets_partition,
    group_id,
    topic,
    partition,
    minute
  FROM busy
), marked AS (
  SELECT
    p.offsets_partition,
    p.group_id,
    p.topic,
    p.partition,
    p.minute,
    MAX(c.minute) OVER (
      PARTITION BY p.offsets_partition, p.group_id, p.topic, p.partition
      ORDER BY p.minute NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS commit_minute
  FROM points AS p
  LEFT JOIN committed AS c
    ON c.offsets_partition = p.offsets_partition
    AND c.group_id = p.group_id
    AND c.topic = p.topic
    AND c.partition = p.partition
    AND c.minute = p.minute
), both_kinds AS (
  SELECT
    offsets_partition,
    group_id,
    topic,
    partition,
    minute,
    commit_minute,
    1 AS kind,
    TRY_CAST(NULL AS TIMESTAMPTZ) AS look_minute
  FROM marked
  UNION ALL
  SELECT
    NULL,
    NULL,
    topic,
    partition,
    minute,
    NULL,
    0,
    minute
  FROM sampled
), in_order AS (
  SELECT
    offsets_partition,
    group_id,
    topic,
    partition,
    minute,
    commit_minute,
    kind,
    MAX(look_minute) OVER (
      PARTITION BY topic, partition
      ORDER BY minute NULLS FIRST, kind NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS look_minute
  FROM both_kinds
), standing AS (
  SELECT
    o.offsets_partition,
    o.group_id,
    o.topic,
    o.partition,
    o.minute,
    o.commit_minute = o.minute AS is_committed,
    c.log_id,
    c.record_offset,
    c.committed_offset,
    c.is_tombstone,
    s.topic_id,
    s.last_stable_offset,
    s.readable_end,
    s.sampled_at,
    s.held_until,
    s.log_start_offset,
    CASE
      WHEN (
        t.deleted_at IS NULL OR t.deleted_at > o.minute + INTERVAL '1' MINUTE
      )
      AND s.known_until >= o.minute + INTERVAL '1' MINUTE
      THEN s.high_watermark
    END AS high_watermark
  FROM in_order AS o
  JOIN committed AS c
    ON c.offsets_partition = o.offsets_partition
    AND c.group_id = o.group_id
    AND c.topic = o.topic
    AND c.partition = o.partition
    AND c.minute = o.commit_minute
  LEFT JOIN sampled AS s
    ON s.topic = o.topic AND s.partition = o.partition AND s.minute = o.look_minute
  LEFT JOIN topics AS t
    ON t.topic_id = s.topic_id
  LEFT JOIN offsets_partitions AS p
    ON p.offsets_partition = o.offsets_partition
  WHERE
    o.kind = 1
    AND COALESCE(c.log_id >= p.log_id OR o.minute < p.history_complete_from, TRUE)
)
SELECT
  group_id,
  topic,
  partition,
  minute,
  committed_offset,
  high_watermark AS log_end_offset,
  GREATEST(
    0,
    COALESCE(readable_end, high_watermark) - GREATEST(committed_offset, log_start_offset)
  ) AS lag,
  CASE
    WHEN NOT log_start_offset IS NULL
    THEN GREATEST(0, log_start_offset - committed_offset)
  END AS messages_lost,
  is_committed
FROM standing
WHERE
  NOT is_tombstone AND committed_offset >= 0 AND NOT high_watermark IS NULL
