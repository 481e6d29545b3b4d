-- Reads: clock, committed_offsets, end_intervals, groups, offset_commits, partition_ends, thresholds
WITH limits AS (
  SELECT
    group_id,
    MAX(allowed_lag) AS allowed_lag,
    MAX(minimum_complete) AS minimum_complete,
    MAX(intervals) AS intervals,
    MAX(window_seconds) AS window_seconds,
    MAX(max_time_lag_seconds) AS max_time_lag_seconds
  FROM thresholds
  GROUP BY
    group_id
), limited AS (
  SELECT
    k.now_at AS instant,
    c.log_id,
    c.offsets_partition,
    c.group_id,
    c.topic,
    c.partition,
    c.committed_offset,
    CASE WHEN e.error IS NULL THEN e.high_watermark END AS end_offset,
    e.log_start_offset,
    e.sampled_at,
    CASE
      WHEN e.topic IS NULL OR (
        e.error IS NULL AND e.high_watermark IS NULL
      )
      THEN 'its end was not sampled'
      WHEN NOT e.error IS NULL
      THEN 'its end is not known: ' || e.error
    END AS not_known,
    COALESCE(g.member_count, 0) AS member_count,
    COALESCE(own.allowed_lag, std.allowed_lag, 0) AS allowed_lag,
    COALESCE(own.minimum_complete, std.minimum_complete, TRY_CAST(0 AS DOUBLE)) AS minimum_complete,
    COALESCE(own.intervals, std.intervals, 10) AS intervals,
    COALESCE(own.window_seconds, std.window_seconds, 300) AS window_seconds,
    COALESCE(own.max_time_lag_seconds, std.max_time_lag_seconds) AS max_time_lag_seconds
  FROM committed_offsets AS c
  CROSS JOIN clock AS k
  LEFT JOIN partition_ends AS e
    ON e.topic = c.topic AND e.partition = c.partition
  LEFT JOIN groups AS g
    ON g.offsets_partition = c.offsets_partition AND g.group_id = c.group_id
  LEFT JOIN limits AS own
    ON own.group_id = c.group_id
  LEFT JOIN limits AS std
    ON std.group_id IS NULL
  WHERE
    c.in_coordinator_partition
), cells AS (
  /* Ends are sampled every ten seconds, by Burrow as by the job: so many of them are in its ring. */
  SELECT
    l.*,
    instant - window_seconds * INTERVAL '1' SECOND AS window_start,
    sampled_at - (
      intervals - 1
    ) * INTERVAL '10' SECOND AS ring_start,
    instant - max_time_lag_seconds * INTERVAL '1' SECOND AS late_before
  FROM limited AS l
), ordered AS (
  SELECT
    c.instant,
    c.offsets_partition,
    c.group_id,
    c.topic,
    c.partition,
    c.intervals,
    c.window_start,
    h.record_offset,
    h.record_timestamp,
    h.is_tombstone,
    h.committed_offset,
    h.commit_timestamp_ms,
    ROW_NUMBER() OVER (
      PARTITION BY h.offsets_partition, h.group_id, h.topic, h.partition
      ORDER BY h.record_offset DESC
    ) AS nth,
    LAG(h.record_timestamp) OVER (
      PARTITION BY h.offsets_partition, h.group_id, h.topic, h.partition
      ORDER BY h.record_offset DESC
    ) AS next_at
  FROM cells AS c
  JOIN offset_commits AS h
    ON h.offsets_partition = c.offsets_partition
    AND h.group_id = c.group_id
    AND h.topic = c.topic
    AND h.partition = c.partition
    AND h.log_id = c.log_id
), looked_at AS (
  SELECT
    *
  FROM ordered
  WHERE
    nth <= intervals OR next_at > window_start
), deletions AS (
  SELECT
    instant,
    offsets_partition,
    group_id,
    topic,
    partition,
    MAX(record_offset) AS record_offset
  FROM looked_at
  WHERE
    is_tombstone
  GROUP BY
    instant,
    offsets_partition,
    group_id,
    topic,
    partition
), commits AS (
  /* What was deleted is another story: a group that came back begins anew. */
  SELECT
    w.*,
    w.nth <= w.intervals AS in_ring
  FROM looked_at AS w
  LEFT JOIN deletions AS d
    ON d.instant = w.instant
    AND d.offsets_partition = w.offsets_partition
    AND d.group_id = w.group_id
    AND d.topic = w.topic
    AND d.partition = w.partition
  WHERE
    NOT w.is_tombstone
    AND (
      d.record_offset IS NULL OR w.record_offset > d.record_offset
    )
), ends AS (
  SELECT
    i.topic,
    i.partition,
    i.sampled_at,
    i.held_until,
    i.high_watermark,
    i.lowest_from,
    i.next_sampled_at,
    i.next_offset,
    i.next_lowest
  FROM end_intervals AS i
  JOIN partition_ends AS e
    ON e.topic = i.topic
    AND e.topic_id IS NOT DISTINCT FROM i.topic_id
    AND e.partition = i.partition
), moments AS (
  SELECT
    topic,
    partition,
    record_timestamp AS moment,
    1 AS kind,
    instant,
    offsets_partition,
    group_id,
    record_offset,
    committed_offset,
    commit_timestamp_ms,
    next_at,
    nth,
    in_ring,
    TRY_CAST(NULL AS TIMESTAMPTZ) AS end_at
  FROM commits
  UNION ALL
  SELECT
    topic,
    partition,
    window_start,
    2,
    instant,
    offsets_partition,
    group_id,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL
  FROM cells
  UNION ALL
  SELECT
    topic,
    partition,
    ring_start,
    3,
    instant,
    offsets_partition,
    group_id,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL
  FROM cells
  UNION ALL
  SELECT
    topic,
    partition,
    late_before,
    4,
    instant,
    offsets_partition,
    group_id,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL
  FROM cells
  WHERE
    NOT late_before IS NULL
  UNION ALL
  SELECT
    topic,
    partition,
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
    m.topic,
    m.partition,
    m.moment,
    m.kind,
    m.instant,
    m.offsets_partition,
    m.group_id,
    m.record_offset,
    m.committed_offset,
    m.commit_timestamp_ms,
    m.next_at,
    m.nth,
    m.in_ring,
    MAX(m.end_at) OVER (
      PARTITION BY m.topic, m.partition
      ORDER BY m.moment NULLS FIRST, m.kind NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS end_at
  FROM moments AS m
  WHERE
    NOT m.moment IS NULL
), seen AS (
  SELECT
    p.*,
    e.high_watermark,
    e.held_until,
    e.lowest_from,
    e.next_offset,
    e.next_lowest,
    e.next_sampled_at,
    CASE
      WHEN p.kind = 1 AND NOT e.high_watermark IS NULL
      THEN GREATEST(0, e.high_watermark - p.committed_offset)
    END AS lag_then
  FROM placed AS p
  LEFT JOIN ends AS e
    ON e.topic = p.topic AND e.partition = p.partition AND e.sampled_at = p.end_at
  WHERE
    p.kind > 0
), ring AS (
  SELECT
    instant,
    offsets_partition,
    group_id,
    topic,
    partition,
    record_offset,
    committed_offset,
    commit_timestamp_ms,
    lag_then,
    nth,
    LAG(committed_offset) OVER (
      PARTITION BY instant, offsets_partition, group_id, topic, partition
      ORDER BY record_offset NULLS FIRST
    ) AS previous_offset,
    LAST_VALUE(lag_then IGNORE NULLS) OVER (
      PARTITION BY instant, offsets_partition, group_id, topic, partition
      ORDER BY record_offset NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS previous_lag,
    MAX(nth) OVER (PARTITION BY instant, offsets_partition, group_id, topic, partition) AS commits
  FROM seen
  WHERE
    kind = 1 AND in_ring
), rewinds AS (
  SELECT
    instant,
    offsets_partition,
    group_id,
    topic,
    partition,
    MIN(record_offset) AS record_offset
  FROM ring
  WHERE
    committed_offset < previous_offset
  GROUP BY
    instant,
    offsets_partition,
    group_id,
    topic,
    partition
), rings AS (
  SELECT
    r.instant,
    r.offsets_partition,
    r.group_id,
    r.topic,
    r.partition,
    COUNT(*) AS commits,
    MAX(CASE WHEN r.nth = r.commits THEN r.commit_timestamp_ms END) AS first_ms,
    MAX(CASE WHEN r.nth = 1 THEN r.commit_timestamp_ms END) AS last_ms,
    MAX(CASE WHEN r.record_offset = b.record_offset THEN r.previous_offset END) AS before_rewind,
    MAX(CASE WHEN r.record_offset >= b.record_offset THEN r.committed_offset END) AS best_since_rewind,
    MIN(r.lag_then) AS lowest_lag,
    MIN(r.committed_offset) = MAX(r.committed_offset) AS is_stalled,
    COALESCE(MAX(CASE WHEN r.lag_then < r.previous_lag THEN 1 END), 0) AS lag_fell
  FROM ring AS r
  LEFT JOIN rewinds AS b
    ON b.instant = r.instant
    AND b.offsets_partition = r.offsets_partition
    AND b.group_id = r.group_id
    AND b.topic = r.topic
    AND b.partition = r.partition
  GROUP BY
    r.instant,
    r.offsets_partition,
    r.group_id,
    r.topic,
    r.partition
), before AS (
  /* The lag of the window's start, the lowest that a sample since then may have seen, the lowest end of the ring, the end of late_before. */
  SELECT
    s.instant,
    s.offsets_partition,
    s.group_id,
    s.topic,
    s.partition,
    MAX(
      CASE
        WHEN s.kind = 1
        AND s.moment <= c.window_start
        AND (
          s.next_at IS NULL OR s.next_at > c.window_start
        )
        THEN s.committed_offset
      END
    ) AS committed_before,
    MAX(CASE WHEN s.kind = 2 THEN s.high_watermark END) AS end_before,
    MAX(
      CASE
        WHEN s.kind = 2
        THEN CASE
          WHEN s.held_until > s.moment
          THEN s.high_watermark
          WHEN s.next_sampled_at <= s.instant
          THEN s.next_offset
        END
      END
    ) AS end_after_start,
    MIN(
      CASE
        WHEN s.kind = 1 AND s.moment > c.window_start
        THEN CASE
          WHEN s.held_until >= s.moment
          THEN s.high_watermark
          WHEN s.next_sampled_at <= s.instant
          AND (
            s.next_at IS NULL OR s.next_at > s.next_sampled_at
          )
          THEN s.next_offset
        END - s.committed_offset
      END
    ) AS lowest_since,
    MAX(
      CASE
        WHEN s.kind = 3
        THEN CASE
          WHEN s.end_at IS NULL
          THEN NULL
          WHEN s.held_until >= s.moment
          THEN s.lowest_from
          ELSE s.next_lowest
        END
      END
    ) AS lowest_end,
    MAX(
      CASE
        WHEN s.kind = 4
        THEN CASE
          WHEN s.held_until >= s.moment
          OR s.next_sampled_at IS NULL
          OR s.next_sampled_at > s.instant
          THEN TRY_CAST(s.high_watermark AS DOUBLE)
          ELSE TRY_CAST(s.high_watermark AS DOUBLE) + TRY_CAST(s.next_offset - s.high_watermark AS DOUBLE) * TRY_CAST(EPOCH_US(s.moment) - EPOCH_US(s.held_until) AS DOUBLE) / NULLIF(TRY_CAST(EPOCH_US(s.next_sampled_at) - EPOCH_US(s.held_until) AS DOUBLE), 0)
        END
      END
    ) AS late_end
  FROM seen AS s
  JOIN cells AS c
    ON c.instant = s.instant
    AND c.offsets_partition = s.offsets_partition
    AND c.group_id = s.group_id
    AND c.topic = s.topic
    AND c.partition = s.partition
  GROUP BY
    s.instant,
    s.offsets_partition,
    s.group_id,
    s.topic,
    s.partition
), lowest_ends AS (
  SELECT
    topic,
    partition,
    MIN(high_watermark) AS lowest_end
  FROM ends
  GROUP BY
    topic,
    partition
), facts AS (
  SELECT
    c.instant,
    c.offsets_partition,
    c.group_id,
    c.topic,
    c.partition,
    c.committed_offset,
    c.not_known,
    c.sampled_at,
    c.member_count,
    c.allowed_lag,
    c.minimum_complete,
    c.window_seconds,
    c.max_time_lag_seconds,
    COALESCE(r.commits, 0) AS commits,
    TRY_CAST(COALESCE(r.commits, 0) AS DOUBLE) / NULLIF(TRY_CAST(c.intervals AS DOUBLE), 0) AS complete,
    r.first_ms,
    r.last_ms,
    r.before_rewind,
    r.best_since_rewind,
    r.lowest_lag,
    r.is_stalled,
    r.lag_fell,
    GREATEST(0, COALESCE(c.end_offset, c.committed_offset) - c.committed_offset) AS current_lag,
    EPOCH_US(c.instant) // 1000000 * 1000 AS now_ms,
    COALESCE(b.lowest_end, l.lowest_end) AS lowest_end,
    CASE
      WHEN NOT b.end_before IS NULL AND NOT b.committed_before IS NULL
      THEN GREATEST(0, b.end_before - b.committed_before)
    END AS lag_before,
    LEAST(b.lowest_since, b.end_after_start - b.committed_before) AS lowest_since,
    GREATEST(c.committed_offset, c.log_start_offset) < b.late_end AS is_late
  FROM cells AS c
  LEFT JOIN rings AS r
    ON r.instant = c.instant
    AND r.offsets_partition = c.offsets_partition
    AND r.group_id = c.group_id
    AND r.topic = c.topic
    AND r.partition = c.partition
  LEFT JOIN before AS b
    ON b.instant = c.instant
    AND b.offsets_partition = c.offsets_partition
    AND b.group_id = c.group_id
    AND b.topic = c.topic
    AND b.partition = c.partition
  LEFT JOIN lowest_ends AS l
    ON l.topic = c.topic AND l.partition = c.partition
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
      THEN 'too few commits to tell'
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
      THEN 'moved back from ' || TRY_CAST(before_rewind AS TEXT) || ', and has come to ' || TRY_CAST(best_since_rewind AS TEXT) || ' since'
      WHEN lowest_lag <= allowed_lag
      THEN 'had caught up within its last commits'
      WHEN is_stalled
      THEN 'commits, but always the same offset ' || TRY_CAST(committed_offset AS TEXT)
      WHEN lag_fell = 1
      THEN 'its lag fell within its last commits'
      ELSE 'moves on, but its lag never fell in its last ' || TRY_CAST(commits AS TEXT) || ' commits'
    END AS status_reason
  FROM facts AS f
), verdicts AS (
  SELECT
    b.*,
    CASE
      WHEN NOT not_known IS NULL
      THEN 'unknown'
      WHEN current_lag <= allowed_lag
      THEN 'ok'
      WHEN commits = 0
      THEN 'unknown'
      WHEN member_count = 0 AND now_ms - last_ms > window_seconds * 1000
      THEN 'dead'
      WHEN status = 'REWIND'
      THEN 'rewound'
      WHEN status = 'STOP'
      THEN 'stopped'
      WHEN status = 'STALL'
      THEN 'stalled'
      WHEN is_late
      THEN 'late'
      WHEN current_lag > lag_before
      AND (
        lowest_since IS NULL OR lowest_since > allowed_lag
      )
      THEN 'falling behind'
      WHEN current_lag < lag_before
      AND (
        lowest_since IS NULL OR lowest_since > allowed_lag
      )
      THEN 'catching up'
      ELSE 'ok'
    END AS verdict
  FROM burrow AS b
), judged AS (
  SELECT
    instant,
    offsets_partition,
    group_id,
    topic,
    partition,
    status,
    status_reason,
    verdict,
    CASE verdict
      WHEN 'unknown'
      THEN COALESCE(not_known, 'the history has no commit of it')
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
      THEN 'its lag rose from ' || TRY_CAST(lag_before AS TEXT) || ' to ' || TRY_CAST(current_lag AS TEXT) || ' in ' || TRY_CAST(window_seconds AS TEXT) || ' s'
      WHEN 'catching up'
      THEN 'its lag fell from ' || TRY_CAST(lag_before AS TEXT) || ' to ' || TRY_CAST(current_lag AS TEXT) || ' in ' || TRY_CAST(window_seconds AS TEXT) || ' s'
      ELSE CASE
        WHEN current_lag <= allowed_lag
        THEN 'nothing waits'
        WHEN lowest_since <= allowed_lag
        THEN 'had caught up within the last ' || TRY_CAST(window_seconds AS TEXT) || ' s'
        WHEN lag_before IS NULL
        THEN 'its lag of ' || TRY_CAST(window_seconds AS TEXT) || ' s ago is not known'
        ELSE 'keeps its distance of ' || TRY_CAST(current_lag AS TEXT)
      END
    END AS verdict_reason,
    CASE verdict
      WHEN 'ok'
      THEN 0
      WHEN 'catching up'
      THEN 1
      WHEN 'unknown'
      THEN 2
      WHEN 'falling behind'
      THEN 3
      WHEN 'late'
      THEN 4
      WHEN 'stalled'
      THEN 5
      WHEN 'stopped'
      THEN 6
      WHEN 'rewound'
      THEN 7
      ELSE 8
    END AS verdict_level,
    CASE status
      WHEN 'OK'
      THEN 1
      WHEN 'WARN'
      THEN 2
      WHEN 'STOP'
      THEN 4
      WHEN 'STALL'
      THEN 5
      ELSE 6
    END AS status_level,
    current_lag,
    committed_offset,
    commits,
    complete,
    first_ms AS first_commit_at_ms,
    last_ms AS last_commit_at_ms,
    lag_before,
    sampled_at
  FROM verdicts
)
SELECT
  group_id,
  topic,
  partition,
  status,
  status_reason,
  verdict,
  verdict_reason,
  current_lag,
  committed_offset,
  commits,
  complete,
  first_commit_at_ms,
  last_commit_at_ms,
  lag_before,
  sampled_at
FROM judged
