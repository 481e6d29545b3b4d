-- Reads: blocked_ends, clock, end_intervals, freshness, group_history, member_history, offset_commits, offsets_partitions, thresholds, topics, verdicts
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
), group_minutes AS (
  SELECT DISTINCT
    offsets_partition,
    group_id,
    minute
  FROM busy
), points AS (
  SELECT
    f.offsets_partition,
    f.group_id,
    f.topic,
    f.partition,
    g.minute
  FROM first_commits AS f
  JOIN group_minutes AS g
    ON g.offsets_partition = f.offsets_partition
    AND g.group_id = f.group_id
    AND g.minute >= f.minute
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
), limits AS (
  SELECT
    group_id,
    MAX(NULLIF(allowed_lag, TRY_CAST('NaN' AS DOUBLE))) AS allowed_lag,
    MAX(NULLIF(minimum_complete, TRY_CAST('NaN' AS DOUBLE))) AS minimum_complete,
    MAX(NULLIF(intervals, TRY_CAST('NaN' AS DOUBLE))) AS intervals,
    MAX(NULLIF(window_seconds, TRY_CAST('NaN' AS DOUBLE))) AS window_seconds,
    MAX(NULLIF(max_time_lag_seconds, TRY_CAST('NaN' AS DOUBLE))) AS max_time_lag_seconds
  FROM thresholds
  GROUP BY
    group_id
), member_counts AS (
  SELECT
    offsets_partition,
    group_id,
    record_timestamp AS moment,
    0 AS kind,
    log_id,
    record_offset
  FROM group_history
  UNION ALL
  SELECT
    offsets_partition,
    group_id,
    minute + INTERVAL '1' MINUTE,
    1,
    NULL,
    NULL
  FROM group_minutes
), counted AS (
  SELECT
    offsets_partition,
    group_id,
    moment,
    kind,
    LAST_VALUE(log_id IGNORE NULLS) OVER (
      PARTITION BY offsets_partition, group_id
      ORDER BY moment NULLS FIRST, kind DESC, COALESCE(record_offset, -1) NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS log_id,
    LAST_VALUE(record_offset IGNORE NULLS) OVER (
      PARTITION BY offsets_partition, group_id
      ORDER BY moment NULLS FIRST, kind DESC, COALESCE(record_offset, -1) NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS record_offset
  FROM member_counts
), sizes AS (
  SELECT
    c.offsets_partition,
    c.group_id,
    c.moment AS instant,
    CASE WHEN h.is_removed THEN 0 ELSE COALESCE(h.member_count, 0) END AS member_count,
    h.group_type
  FROM counted AS c
  LEFT JOIN group_history AS h
    ON h.offsets_partition = c.offsets_partition
    AND h.group_id = c.group_id
    AND h.log_id = c.log_id
    AND h.record_offset = c.record_offset
  WHERE
    c.kind = 1
), memberships AS (
  /* The topics that a member subscribed to after each change and before: ? if unknown, empty if there was no such member. */
  SELECT
    m.*,
    COALESCE(
      LAG(topics) OVER (
        PARTITION BY log_id, offsets_partition, group_id, member_id
        ORDER BY record_offset NULLS FIRST
      ),
      ''
    ) AS had_topics
  FROM (
    SELECT
      log_id,
      offsets_partition,
      group_id,
      member_id,
      record_offset,
      record_timestamp,
      CASE
        WHEN change = 'left'
        THEN ''
        WHEN COALESCE(subscribed_topics, '') = ''
        OR COALESCE(subscribed_topic_regex, '') <> ''
        THEN '?'
        ELSE ',' || subscribed_topics || ','
      END AS topics
    FROM member_history
  ) AS m
), subscriptions AS (
  SELECT
    m.log_id,
    m.offsets_partition,
    m.group_id,
    t.topic,
    m.record_timestamp AS moment,
    0 AS kind,
    m.record_offset,
    CASE WHEN m.topics = '' THEN 0 ELSE 1 END - CASE WHEN m.had_topics = '' THEN 0 ELSE 1 END AS members,
    CASE
      WHEN m.topics = '?' OR CONTAINS(m.topics, ',' || t.topic || ',')
      THEN 1
      ELSE 0
    END - CASE
      WHEN m.had_topics = '?' OR CONTAINS(m.had_topics, ',' || t.topic || ',')
      THEN 1
      ELSE 0
    END AS may_read
  FROM memberships AS m
  JOIN (
    SELECT DISTINCT
      offsets_partition,
      group_id,
      topic
    FROM first_commits
  ) AS t
    ON t.offsets_partition = m.offsets_partition AND t.group_id = m.group_id
  WHERE
    m.topics <> m.had_topics
  UNION ALL
  SELECT DISTINCT
    log_id,
    offsets_partition,
    group_id,
    topic,
    minute + INTERVAL '1' MINUTE,
    1,
    NULL,
    0,
    0
  FROM standing
), subscribed AS (
  SELECT
    log_id,
    offsets_partition,
    group_id,
    topic,
    moment AS instant,
    kind,
    SUM(members) OVER (
      PARTITION BY log_id, offsets_partition, group_id, topic
      ORDER BY moment NULLS FIRST, kind DESC, COALESCE(record_offset, -1) NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS members,
    SUM(may_read) OVER (
      PARTITION BY log_id, offsets_partition, group_id, topic
      ORDER BY moment NULLS FIRST, kind DESC, COALESCE(record_offset, -1) NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS may_read
  FROM subscriptions
), places AS (
  SELECT
    topic,
    topic_id,
    partition,
    ROW_NUMBER() OVER (
      ORDER BY topic NULLS FIRST, COALESCE(topic_id, '') NULLS FIRST, partition NULLS FIRST
    ) AS place
  FROM (
    SELECT DISTINCT
      topic,
      topic_id,
      partition
    FROM end_intervals
  ) AS p
), limited AS (
  SELECT
    ROW_NUMBER() OVER (
      ORDER BY s.offsets_partition NULLS FIRST, s.group_id NULLS FIRST, s.topic NULLS FIRST, s.partition NULLS FIRST, s.minute NULLS FIRST
    ) AS cell,
    COALESCE(e.place, -1) AS place,
    LEAST(s.minute + INTERVAL '1' MINUTE, s.held_until) AS instant, /* As of the last check, as group_status judged at that time. */
    s.log_id,
    s.offsets_partition,
    s.group_id,
    s.topic,
    s.partition,
    s.committed_offset,
    CASE
      WHEN s.committed_offset >= s.readable_end
      THEN LEAST(s.high_watermark, s.committed_offset)
      WHEN s.committed_offset >= 0
      THEN COALESCE(s.readable_end, s.high_watermark)
    END AS end_offset,
    s.readable_end IS NULL
    AND s.last_stable_offset = s.high_watermark
    AND s.committed_offset = s.high_watermark - 1 AS is_perhaps_marker,
    TRY_CAST(NULL AS TEXT) AS open_transaction,
    TRY_CAST(NULL AS TIMESTAMPTZ) AS open_transaction_since,
    s.log_start_offset,
    LEAST(s.held_until, s.minute + INTERVAL '1' MINUTE) AS sampled_at,
    s.record_offset,
    CASE
      WHEN s.committed_offset < 0
      THEN 'no offset: ' || TRY_CAST(s.committed_offset AS TEXT) || ' was committed'
      WHEN s.high_watermark IS NULL
      THEN 'its end was not sampled'
    END AS not_known,
    TRY_CAST(NULL AS TEXT) AS known_cause,
    TRY_CAST(NULL AS TIMESTAMPTZ) AS recreated_at,
    TRY_CAST(NULL AS TEXT) AS stale_reason,
    CASE WHEN f.blocked_since <= s.minute THEN f.blocked_since END AS blocked_since,
    CASE
      WHEN s.committed_offset >= s.last_stable_offset
      AND s.last_stable_offset < s.high_watermark
      THEN w.blocked_since
    END AS waits_since,
    s.last_stable_offset,
    s.minute + INTERVAL '1' MINUTE AS now_at,
    COALESCE(z.member_count, 0) AS member_count,
    COALESCE(
      z.group_type <> 'Streams'
      AND z.member_count > 0
      AND u.members = z.member_count
      AND u.may_read = 0,
      FALSE
    ) AS is_abandoned,
    GREATEST(COALESCE(own.allowed_lag, std.allowed_lag, 0), 0) AS allowed_lag,
    COALESCE(own.minimum_complete, std.minimum_complete, TRY_CAST(0 AS DOUBLE)) AS minimum_complete,
    COALESCE(own.intervals, std.intervals, 10) AS intervals,
    COALESCE(own.window_seconds, std.window_seconds, 300) AS window_seconds,
    COALESCE(own.max_time_lag_seconds, std.max_time_lag_seconds) AS max_time_lag_seconds
  FROM standing AS s
  LEFT JOIN places AS e
    ON e.topic = s.topic
    AND e.topic_id IS NOT DISTINCT FROM s.topic_id
    AND e.partition = s.partition
  LEFT JOIN sizes AS z
    ON z.offsets_partition = s.offsets_partition
    AND z.group_id = s.group_id
    AND z.instant = s.minute + INTERVAL '1' MINUTE
  LEFT JOIN freshness AS f
    ON f.offsets_partition = s.offsets_partition
  LEFT JOIN blocked_ends AS w
    ON w.topic = s.topic
    AND w.topic_id IS NOT DISTINCT FROM s.topic_id
    AND w.partition = s.partition
    AND w.last_stable_offset = s.last_stable_offset
  LEFT JOIN subscribed AS u
    ON u.kind = 1
    AND u.log_id = s.log_id
    AND u.offsets_partition = s.offsets_partition
    AND u.group_id = s.group_id
    AND u.topic = s.topic
    AND u.instant = s.minute + INTERVAL '1' MINUTE
  LEFT JOIN limits AS own
    ON own.group_id = s.group_id
  LEFT JOIN limits AS std
    ON std.group_id IS NULL
  WHERE
    NOT s.is_tombstone
), cells AS (
  SELECT
    l.*,
    instant - window_seconds * INTERVAL '1' SECOND AS window_start,
    sampled_at - (
      intervals - 1
    ) * INTERVAL '10' SECOND AS ring_start,
    instant - max_time_lag_seconds * INTERVAL '1' SECOND AS late_before,
    COALESCE(end_offset > committed_offset + allowed_lag, FALSE) AS is_waiting
  FROM limited AS l
), stories AS (
  /* Records of one cell in one log share a number. */
  SELECT
    log_id,
    offsets_partition,
    group_id,
    topic,
    partition,
    ROW_NUMBER() OVER (
      ORDER BY log_id NULLS FIRST, offsets_partition NULLS FIRST, group_id NULLS FIRST, topic NULLS FIRST, partition NULLS FIRST
    ) AS story
  FROM (
    SELECT DISTINCT
      log_id,
      offsets_partition,
      group_id,
      topic,
      partition
    FROM offset_commits
  ) AS d
), numbered AS (
  SELECT
    t.story,
    h.record_offset,
    h.record_timestamp,
    h.is_tombstone,
    h.committed_offset,
    h.commit_timestamp_ms,
    ROW_NUMBER() OVER (PARTITION BY t.story ORDER BY h.record_offset NULLS FIRST) AS seq,
    LEAD(h.record_timestamp) OVER (PARTITION BY t.story ORDER BY h.record_offset NULLS FIRST) AS next_at,
    LAG(h.committed_offset) OVER (PARTITION BY t.story ORDER BY h.record_offset NULLS FIRST) AS previous_offset,
    MAX(CASE WHEN h.is_tombstone THEN h.record_offset ELSE -1 END) OVER (
      PARTITION BY t.story
      ORDER BY h.record_offset NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS deleted_offset
  FROM stories AS t
  JOIN offset_commits AS h
    ON h.log_id = t.log_id
    AND h.offsets_partition = t.offsets_partition
    AND h.group_id = t.group_id
    AND h.topic = t.topic
    AND h.partition = t.partition
), latest AS (
  SELECT
    c.cell,
    c.place,
    c.instant,
    c.now_at,
    c.intervals,
    c.window_start,
    c.sampled_at,
    c.is_waiting,
    n.story,
    n.seq AS last_seq,
    n.deleted_offset
  FROM cells AS c
  JOIN stories AS t
    ON t.log_id = c.log_id
    AND t.offsets_partition = c.offsets_partition
    AND t.group_id = c.group_id
    AND t.topic = c.topic
    AND t.partition = c.partition
  JOIN numbered AS n
    ON n.story = t.story AND n.record_offset = c.record_offset
), sought AS (
  /* The ring fits into two blocks of 64 commits, the rest of the window into two hours. */
  SELECT
    l.*,
    k.by_hour,
    CASE k.by_hour WHEN 1 THEN EPOCH_US(now_at) // 3600000000 ELSE last_seq // 64 END - k.back AS bucket
  FROM latest AS l
  CROSS JOIN (
    SELECT
      0 AS by_hour,
      0 AS back
    UNION ALL
    SELECT
      0,
      1
    UNION ALL
    SELECT
      1,
      0
    UNION ALL
    SELECT
      1,
      1
  ) AS k
), shelved AS (
  SELECT
    n.*,
    k.by_hour,
    CASE k.by_hour WHEN 1 THEN EPOCH_US(next_at) // 3600000000 ELSE seq // 64 END AS bucket
  FROM numbered AS n
  CROSS JOIN (
    SELECT
      0 AS by_hour
    UNION ALL
    SELECT
      1
  ) AS k
), commits AS (
  SELECT
    c.cell,
    c.place,
    c.instant,
    c.is_waiting,
    n.record_offset,
    n.record_timestamp,
    n.committed_offset,
    n.commit_timestamp_ms,
    CASE WHEN n.next_at > c.now_at THEN NULL ELSE n.next_at END AS next_at,
    c.last_seq - n.seq + 1 AS nth,
    c.last_seq - n.seq < c.intervals AS in_ring,
    CASE WHEN c.last_seq - n.seq + 1 < c.intervals THEN n.previous_offset END AS previous_offset,
    CASE
      WHEN n.record_timestamp > c.window_start
      THEN 1
      WHEN n.next_at IS NULL OR n.next_at > c.window_start OR n.seq = c.last_seq
      THEN 0
    END AS since_start,
    CASE
      WHEN n.record_timestamp <= c.sampled_at
      AND (
        n.seq = c.last_seq OR COALESCE(n.next_at > c.sampled_at, TRUE)
      )
      THEN 1
    END AS stood_at_look
  FROM sought AS c
  JOIN shelved AS n
    ON n.story = c.story AND n.by_hour = c.by_hour AND n.bucket = c.bucket
  WHERE
    n.seq <= c.last_seq
    AND n.record_offset > c.deleted_offset
    AND (
      n.seq > c.last_seq - c.intervals OR n.next_at > c.window_start
    )
    AND (
      c.by_hour = 0 OR n.seq // 64 < c.last_seq // 64 - 1
    )
), counts AS (
  SELECT
    cell,
    COUNT(*) AS commits,
    MAX(CASE WHEN previous_offset IS NULL THEN commit_timestamp_ms END) AS first_ms,
    MAX(CASE WHEN nth = 1 THEN commit_timestamp_ms END) AS last_ms
  FROM commits
  WHERE
    in_ring
  GROUP BY
    cell
), ends AS (
  SELECT
    e.place,
    i.sampled_at,
    i.held_until,
    i.known_until,
    i.high_watermark,
    i.high_watermark AS lowest_from,
    i.next_sampled_at,
    i.next_offset,
    i.next_offset AS next_lowest
  FROM end_intervals AS i
  JOIN places AS e
    ON e.topic = i.topic
    AND e.topic_id IS NOT DISTINCT FROM i.topic_id
    AND e.partition = i.partition
), moments AS (
  SELECT
    place,
    record_timestamp AS moment,
    1 AS kind,
    cell,
    instant,
    record_offset,
    committed_offset,
    previous_offset,
    next_at,
    in_ring,
    since_start,
    stood_at_look,
    TRY_CAST(NULL AS TIMESTAMPTZ) AS end_at
  FROM commits
  WHERE
    is_waiting
  UNION ALL
  SELECT
    c.place,
    CASE k.kind WHEN 2 THEN c.window_start WHEN 3 THEN c.ring_start ELSE c.late_before END,
    k.kind,
    c.cell,
    c.instant,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL
  FROM cells AS c
  CROSS JOIN (
    SELECT
      2 AS kind
    UNION ALL
    SELECT
      3
    UNION ALL
    SELECT
      4
  ) AS k
  WHERE
    c.is_waiting
  UNION ALL
  SELECT
    place,
    sampled_at,
    0,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    sampled_at
  FROM ends
), placed AS (
  SELECT
    place,
    moment,
    kind,
    cell,
    instant,
    record_offset,
    committed_offset,
    previous_offset,
    next_at,
    in_ring,
    since_start,
    stood_at_look,
    MAX(end_at) OVER (
      PARTITION BY place
      ORDER BY moment NULLS FIRST, kind NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS end_at
  FROM moments
  WHERE
    NOT moment IS NULL AND NOT place IS NULL
), seen AS (
  SELECT
    p.cell,
    p.moment,
    p.kind,
    p.instant,
    p.record_offset,
    p.committed_offset,
    p.previous_offset,
    p.next_at,
    p.in_ring,
    p.since_start,
    p.stood_at_look,
    p.end_at,
    e.high_watermark,
    e.held_until,
    e.known_until,
    e.lowest_from,
    e.next_offset,
    e.next_lowest,
    e.next_sampled_at,
    CASE WHEN p.kind = 1 AND p.moment <= e.known_until THEN e.high_watermark END AS end_then,
    CASE
      WHEN p.kind = 1 AND p.moment <= e.known_until
      THEN GREATEST(0, e.high_watermark - p.committed_offset)
    END AS lag_then
  FROM placed AS p
  LEFT JOIN ends AS e
    ON e.place = p.place AND e.sampled_at = p.end_at
  WHERE
    p.kind > 0
), traced AS (
  SELECT
    s.*,
    MIN(CASE WHEN in_ring AND committed_offset < previous_offset THEN record_offset END) OVER (PARTITION BY cell) AS rewind_offset,
    LAST_VALUE(CASE WHEN in_ring THEN lag_then END IGNORE NULLS) OVER (
      PARTITION BY cell
      ORDER BY COALESCE(record_offset, -1) NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS previous_lag,
    LAG(end_then) OVER (PARTITION BY cell ORDER BY COALESCE(record_offset, -1) NULLS FIRST) AS previous_end
  FROM seen AS s
), before AS (
  /* From the ring; the lag at the start of the window; the lowest lag that a sample since then may have seen; how far the best commit since then */
  /* stayed below the end at the commit before it; the lowest end in the ring; the end at late_before. */
  SELECT
    cell,
    MAX(CASE WHEN record_offset = rewind_offset THEN previous_offset END) AS before_rewind,
    MAX(CASE WHEN in_ring AND record_offset >= rewind_offset THEN committed_offset END) AS best_since_rewind,
    MIN(CASE WHEN in_ring THEN lag_then END) AS lowest_lag,
    MIN(CASE WHEN in_ring THEN committed_offset END) = MAX(CASE WHEN in_ring THEN committed_offset END) AS is_stalled,
    MAX(CASE WHEN in_ring AND lag_then < previous_lag THEN 1 END) AS lag_fell,
    MAX(CASE WHEN since_start = 0 THEN committed_offset END) AS committed_before,
    MAX(CASE WHEN kind = 2 AND moment <= known_until THEN high_watermark END) AS end_before,
    MAX(
      CASE
        WHEN kind = 2
        THEN CASE
          WHEN held_until > moment
          THEN high_watermark
          WHEN next_sampled_at <= instant
          THEN next_offset
        END
      END
    ) AS end_after_start,
    MIN(
      CASE
        WHEN since_start = 1
        THEN CASE
          WHEN held_until >= moment
          THEN high_watermark
          WHEN next_sampled_at <= instant AND (
            next_at IS NULL OR next_at > next_sampled_at
          )
          THEN next_offset
        END - committed_offset
      END
    ) AS lowest_since,
    MAX(CASE WHEN stood_at_look = 1 THEN committed_offset END) AS committed_at_look,
    MAX(CASE WHEN kind = 1 AND next_at IS NULL THEN lag_then END) AS lag_of_newest,
    MIN(CASE WHEN since_start = 1 THEN previous_end - committed_offset END) AS short_of_previous,
    MAX(CASE WHEN since_start = 1 AND previous_end IS NULL THEN 1 ELSE 0 END) AS has_unknown_previous,
    MAX(
      CASE
        WHEN kind = 3 AND NOT end_at IS NULL
        THEN CASE WHEN held_until >= moment THEN lowest_from ELSE next_lowest END
      END
    ) AS lowest_end,
    MAX(
      CASE
        WHEN kind = 4
        THEN CASE
          WHEN held_until >= moment
          OR next_sampled_at IS NULL
          OR next_sampled_at > LEAST(instant, known_until)
          THEN TRY_CAST(high_watermark AS DOUBLE)
          ELSE TRY_CAST(high_watermark AS DOUBLE) + TRY_CAST(next_offset - high_watermark AS DOUBLE) * TRY_CAST(EPOCH_US(moment) - EPOCH_US(held_until) AS DOUBLE) / NULLIF(TRY_CAST(EPOCH_US(next_sampled_at) - EPOCH_US(held_until) AS DOUBLE), 0)
        END
      END
    ) AS late_end
  FROM traced
  GROUP BY
    cell
), lowest_ends AS (
  SELECT
    place,
    MIN(high_watermark) AS lowest_end
  FROM ends
  GROUP BY
    place
), facts AS (
  SELECT
    c.cell,
    c.instant,
    c.offsets_partition,
    c.group_id,
    c.topic,
    c.partition,
    c.committed_offset,
    c.not_known,
    c.known_cause,
    c.recreated_at,
    c.stale_reason,
    c.blocked_since,
    c.waits_since,
    c.last_stable_offset,
    c.is_perhaps_marker,
    c.open_transaction,
    c.open_transaction_since,
    c.now_at,
    c.sampled_at,
    c.member_count,
    c.is_abandoned,
    c.allowed_lag,
    c.minimum_complete,
    c.intervals,
    c.window_seconds,
    c.max_time_lag_seconds,
    COALESCE(n.commits, 0) AS commits,
    TRY_CAST(COALESCE(n.commits, 0) AS DOUBLE) / NULLIF(TRY_CAST(c.intervals AS DOUBLE), 0) AS complete,
    n.first_ms,
    n.last_ms,
    b.before_rewind,
    b.best_since_rewind,
    b.lowest_lag,
    b.is_stalled,
    b.lag_fell,
    GREATEST(0, COALESCE(c.end_offset, c.committed_offset) - c.committed_offset) AS current_lag,
    GREATEST(
      0,
      COALESCE(c.end_offset, c.committed_offset) - GREATEST(c.committed_offset, COALESCE(c.log_start_offset, 0))
    ) AS readable_lag, /* Messages that the log no longer has do not wait. */
    CASE
      WHEN NOT c.end_offset IS NULL
      THEN GREATEST(0, c.log_start_offset - c.committed_offset)
    END AS messages_lost,
    COALESCE(
      c.committed_offset > c.end_offset
      AND n.last_ms < EPOCH_US(c.sampled_at) // 1000 - 60000,
      FALSE
    ) AS is_beyond_end,
    c.end_offset,
    EPOCH_US(c.instant) // 1000000 * 1000 AS now_ms,
    COALESCE(b.lowest_end, l.lowest_end) AS lowest_end,
    CASE
      WHEN NOT b.end_before IS NULL AND NOT b.committed_before IS NULL
      THEN GREATEST(0, b.end_before - b.committed_before)
    END AS lag_before,
    b.end_after_start - b.committed_before AS most_before,
    b.lag_of_newest,
    c.end_offset - b.committed_at_look AS lag_at_look,
    b.has_unknown_previous,
    COALESCE(
      LEAST(b.lowest_since, b.end_after_start - b.committed_before, b.short_of_previous) <= c.allowed_lag,
      FALSE
    ) AS had_caught_up, /* As with Kafka's replicas: one that reaches the log end of its previous fetch is in sync, although the log has grown since. */
    GREATEST(c.committed_offset, c.log_start_offset) < b.late_end AS is_late
  FROM cells AS c
  LEFT JOIN counts AS n
    ON n.cell = c.cell
  LEFT JOIN before AS b
    ON b.cell = c.cell
  LEFT JOIN lowest_ends AS l
    ON l.place = c.place
), burrow AS (
  SELECT
    f.*,
    CASE
      WHEN commits = 0
      THEN 'OK'
      WHEN complete < minimum_complete
      THEN 'OK'
      WHEN current_lag <= allowed_lag
      THEN 'OK'
      WHEN now_ms - last_ms > last_ms - first_ms AND lowest_end > committed_offset
      THEN 'STOP'
      WHEN best_since_rewind < before_rewind
      THEN 'REWIND'
      WHEN lowest_lag <= allowed_lag
      THEN 'OK'
      WHEN is_stalled
      THEN 'STALL'
      WHEN lag_fell = 1
      THEN 'OK'
      ELSE 'WARN'
    END AS status,
    CASE
      WHEN commits = 0
      THEN 'the history has no commit'
      WHEN complete < minimum_complete
      THEN 'too few commits to judge'
      WHEN current_lag <= allowed_lag
      THEN 'nothing waits'
      WHEN now_ms - last_ms > last_ms - first_ms AND lowest_end > committed_offset
      THEN CASE
        WHEN commits = 1
        THEN 'its only commit was ' || TRY_CAST((
          now_ms - last_ms
        ) // 1000 AS TEXT) || ' s ago, and messages wait'
        ELSE 'no commit for ' || TRY_CAST((
          now_ms - last_ms
        ) // 1000 AS TEXT) || ' s, longer than its last ' || TRY_CAST(commits AS TEXT) || ' commits took together (' || TRY_CAST((
          last_ms - first_ms
        ) // 1000 AS TEXT) || ' s), and messages wait'
      END
      WHEN best_since_rewind < before_rewind
      THEN 'moved back from ' || TRY_CAST(before_rewind AS TEXT) || ', and has reached ' || TRY_CAST(best_since_rewind AS TEXT) || ' since'
      WHEN lowest_lag <= allowed_lag
      THEN 'caught up within its last commits'
      WHEN is_stalled
      THEN 'commits continue, but always with the same offset ' || TRY_CAST(committed_offset AS TEXT)
      WHEN lag_fell = 1
      THEN 'its lag fell within its last commits'
      ELSE 'commits advance, but the lag never fell in the last ' || TRY_CAST(commits AS TEXT) || ' commits'
    END AS status_reason
  FROM facts AS f
), first_verdicts AS (
  SELECT
    b.*,
    CASE
      WHEN open_transaction IS NULL
      THEN 'an open transaction'
      ELSE 'the open transaction ' || open_transaction
    END AS holder,
    CASE
      WHEN open_transaction_since IS NULL
      THEN ''
      ELSE '; it has been open for ' || TRY_CAST((
        EPOCH_US(now_at) - EPOCH_US(open_transaction_since)
      ) // 1000000 AS TEXT) || ' s'
    END AS open_since,
    CASE
      WHEN NOT not_known IS NULL
      THEN 'unknown'
      WHEN is_beyond_end AND NOT is_abandoned
      THEN 'beyond the end'
      WHEN NOT blocked_since IS NULL
      THEN 'blocked'
      WHEN readable_lag <= allowed_lag
      THEN 'ok'
      WHEN is_abandoned
      THEN 'abandoned'
      WHEN NOT waits_since IS NULL AND member_count > 0
      THEN CASE WHEN waits_since <= instant - INTERVAL '1' MINUTE THEN 'waiting' ELSE 'ok' END
      WHEN commits = 0
      THEN 'unknown'
      WHEN member_count = 0 AND now_ms - last_ms > window_seconds * 1000
      THEN 'dead'
      WHEN status = 'REWIND'
      THEN 'rewound'
      WHEN (
        status = 'STOP' OR (
          status = 'STALL' AND commits = 1
        )
      )
      AND commits < intervals
      AND now_ms - last_ms <= CASE WHEN commits = 1 THEN window_seconds ELSE LEAST(window_seconds, 60) END * 1000
      THEN 'unknown'
      WHEN status = 'STOP'
      THEN 'stopped'
      WHEN status = 'STALL'
      THEN 'stalled'
      WHEN is_late
      THEN 'late'
      WHEN had_caught_up
      THEN 'ok'
      WHEN lag_of_newest > most_before AND has_unknown_previous = 0
      THEN 'falling behind'
      WHEN lag_at_look < lag_before
      THEN 'catching up'
      ELSE 'ok'
    END AS found_verdict
  FROM burrow AS b
), decided AS (
  /* Something that may not be a message makes no group bad. */
  SELECT
    t.*,
    CASE
      WHEN is_perhaps_marker
      AND found_verdict IN ('abandoned', 'dead', 'stopped', 'stalled', 'late', 'falling behind')
      THEN 'unknown'
      ELSE found_verdict
    END AS verdict
  FROM first_verdicts AS t
), judged AS (
  SELECT
    instant,
    now_at,
    offsets_partition,
    group_id,
    topic,
    partition,
    status,
    status_reason,
    verdict,
    CASE verdict
      WHEN 'unknown'
      THEN CASE
        WHEN NOT not_known IS NULL
        THEN not_known
        WHEN found_verdict <> 'unknown'
        THEN 'at most 1 message waits, perhaps only a transaction marker: the job has not read there'
        WHEN commits = 0
        THEN 'the history has no commit of this offset'
        ELSE 'messages wait, and ' || CASE
          WHEN commits = 1
          THEN 'its only commit'
          ELSE 'the last of its ' || TRY_CAST(commits AS TEXT) || ' commits'
        END || ' was ' || TRY_CAST(GREATEST(0, (
          now_ms - last_ms
        ) // 1000) AS TEXT) || ' s ago: too few commits to judge whether it stopped'
      END
      WHEN 'blocked'
      THEN holder || ' blocks the commits of the last ' || TRY_CAST((
        EPOCH_US(now_at) - EPOCH_US(blocked_since)
      ) // 1000000 AS TEXT) || ' s; before that, the group had committed ' || TRY_CAST(committed_offset AS TEXT) || open_since
      WHEN 'abandoned'
      THEN TRY_CAST(readable_lag AS TEXT) || CASE WHEN readable_lag = 1 THEN ' message waits' ELSE ' messages wait' END || ', and no member subscribes to the topic any more'
      WHEN 'waiting'
      THEN 'it has reached the last stable offset ' || TRY_CAST(last_stable_offset AS TEXT) || ', where ' || holder || ' has blocked the log for ' || TRY_CAST((
        EPOCH_US(instant) - EPOCH_US(waits_since)
      ) // 1000000 AS TEXT) || ' s' || open_since
      WHEN 'beyond the end'
      THEN TRY_CAST(committed_offset AS TEXT) || ' is committed, and the log ends at ' || TRY_CAST(end_offset AS TEXT)
      WHEN 'dead'
      THEN 'messages wait, the group has no member, and nothing was committed for ' || TRY_CAST((
        now_ms - last_ms
      ) // 1000 AS TEXT) || ' s'
      WHEN 'rewound'
      THEN status_reason
      WHEN 'stopped'
      THEN status_reason
      WHEN 'stalled'
      THEN status_reason
      WHEN 'late'
      THEN 'messages wait that were written more than ' || TRY_CAST(max_time_lag_seconds AS TEXT) || ' s ago'
      WHEN 'falling behind'
      THEN 'its lag rose from ' || TRY_CAST(most_before AS TEXT) || ' or less to ' || TRY_CAST(lag_of_newest AS TEXT) || ' or more in ' || TRY_CAST(window_seconds AS TEXT) || ' s'
      WHEN 'catching up'
      THEN 'its lag fell from ' || TRY_CAST(lag_before AS TEXT) || ' or more to ' || TRY_CAST(lag_at_look AS TEXT) || ' in ' || TRY_CAST(window_seconds AS TEXT) || ' s'
      ELSE CASE
        WHEN readable_lag <= allowed_lag
        THEN 'nothing waits' || CASE
          WHEN messages_lost > 0
          THEN '; ' || TRY_CAST(messages_lost AS TEXT) || CASE WHEN messages_lost = 1 THEN ' message was' ELSE ' messages were' END || ' deleted unread'
          ELSE ''
        END || CASE
          WHEN is_abandoned
          THEN ', and no member subscribes to the topic any more'
          ELSE ''
        END
        WHEN NOT waits_since IS NULL AND member_count > 0
        THEN 'it has reached the last stable offset, where a transaction is open'
        WHEN had_caught_up
        THEN 'caught up within the last ' || TRY_CAST(window_seconds AS TEXT) || ' s'
        WHEN lag_before IS NULL
        THEN 'its lag ' || TRY_CAST(window_seconds AS TEXT) || ' s ago is unknown'
        WHEN lag_before = current_lag AND most_before = current_lag
        THEN 'its lag stays at ' || TRY_CAST(current_lag AS TEXT)
        ELSE 'its lag is ' || TRY_CAST(current_lag AS TEXT) || ', and was ' || TRY_CAST(lag_before AS TEXT) || CASE
          WHEN most_before IS NULL
          THEN ' or more '
          WHEN most_before > lag_before
          THEN ' to ' || TRY_CAST(most_before AS TEXT) || ' '
          ELSE ' '
        END || TRY_CAST(window_seconds AS TEXT) || ' s ago'
      END
    END AS verdict_reason,
    CASE verdict
      WHEN 'blocked'
      THEN CASE
        WHEN open_transaction IS NULL
        THEN holder || ' on __consumer_offsets-' || TRY_CAST(offsets_partition AS TEXT)
        ELSE holder
      END
      WHEN 'waiting'
      THEN CASE
        WHEN open_transaction IS NULL
        THEN holder || ' on ' || topic || '-' || TRY_CAST(partition AS TEXT)
        ELSE holder
      END
      WHEN 'ok'
      THEN NULL
      WHEN 'catching up'
      THEN NULL
      WHEN 'abandoned'
      THEN NULL
      ELSE CASE
        WHEN verdict = 'rewound'
        AND known_cause IS NULL
        AND first_ms < EPOCH_US(recreated_at) // 1000
        AND before_rewind > end_offset
        THEN 'the topic ' || topic || ' was recreated'
        ELSE known_cause
      END
    END AS cause,
    readable_lag AS current_lag,
    messages_lost,
    committed_offset,
    commits,
    complete,
    first_ms AS first_commit_at_ms,
    last_ms AS last_commit_at_ms,
    lag_before,
    sampled_at,
    NOT stale_reason IS NULL AS is_stale
  FROM decided
), ranked AS (
  SELECT
    j.*,
    ROW_NUMBER() OVER (
      PARTITION BY j.now_at, j.offsets_partition, j.group_id
      ORDER BY v.rank DESC, j.current_lag DESC, j.topic NULLS FIRST, j.partition NULLS FIRST
    ) AS verdict_nth
  FROM judged AS j
  JOIN verdicts AS v
    ON v.verdict = j.verdict
), folded AS (
  /* Where the end is unknown, current_lag is 0, and messages_lost is null. */
  SELECT
    now_at,
    offsets_partition,
    group_id,
    TRY_CAST(SUM(CASE WHEN NOT messages_lost IS NULL THEN current_lag END) AS BIGINT) AS total_lag,
    MAX(CASE WHEN verdict_nth = 1 THEN verdict END) AS verdict,
    MAX(CASE WHEN verdict_nth = 1 THEN verdict_reason END) AS reason,
    MAX(CASE WHEN verdict_nth = 1 THEN topic END) AS topic,
    MAX(CASE WHEN verdict_nth = 1 THEN partition END) AS partition
  FROM ranked
  GROUP BY
    now_at,
    offsets_partition,
    group_id
), told AS (
  SELECT
    g.offsets_partition,
    g.group_id,
    g.minute + INTERVAL '1' MINUTE AS instant,
    v.level,
    v.verdict,
    COALESCE(f.reason, 'no committed offset') AS reason,
    f.topic,
    f.partition,
    f.total_lag
  FROM group_minutes AS g
  LEFT JOIN folded AS f
    ON f.offsets_partition = g.offsets_partition
    AND f.group_id = g.group_id
    AND f.now_at = g.minute + INTERVAL '1' MINUTE
  JOIN verdicts AS v
    ON v.verdict = COALESCE(f.verdict, 'unknown')
), compared AS (
  SELECT
    t.*,
    LAG(level) OVER (PARTITION BY offsets_partition, group_id ORDER BY instant NULLS FIRST) AS previous_level,
    LAG(verdict) OVER (PARTITION BY offsets_partition, group_id ORDER BY instant NULLS FIRST) AS previous_verdict
  FROM told AS t
)
SELECT
  instant AS changed_at,
  group_id,
  level,
  verdict,
  previous_level,
  previous_verdict,
  reason,
  topic,
  partition,
  total_lag
FROM compared
WHERE
  previous_verdict IS NULL OR previous_verdict <> verdict
