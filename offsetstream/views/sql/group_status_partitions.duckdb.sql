-- Reads: blocked_ends, clock, committed_offsets, end_intervals, freshness, group_members, groups, member_subscriptions, offset_commits, partition_ends, thresholds, topics, verdicts, waiting_commits
WITH limits AS (
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
), places AS (
  SELECT
    p.*,
    ROW_NUMBER() OVER (ORDER BY topic NULLS FIRST, partition NULLS FIRST) AS place
  FROM partition_ends AS p
), tombstones AS (
  SELECT
    log_id,
    offsets_partition,
    group_id,
    topic,
    partition,
    MAX(record_offset) AS record_offset
  FROM offset_commits
  WHERE
    is_tombstone
  GROUP BY
    log_id,
    offsets_partition,
    group_id,
    topic,
    partition
), named AS (
  SELECT
    topic,
    MAX(CASE WHEN deleted_at IS NULL THEN topic_id END) AS topic_id,
    MAX(CASE WHEN deleted_at IS NULL THEN partitions END) AS partitions,
    MAX(CASE WHEN deleted_at IS NULL THEN last_seen_at END) AS last_seen_at,
    MAX(deleted_at) AS deleted_at,
    CASE
      WHEN COUNT(deleted_at) > 0
      THEN MAX(CASE WHEN deleted_at IS NULL THEN first_seen_at END)
    END AS recreated_at,
    COUNT(CASE WHEN deleted_at IS NULL THEN 1 END) AS there
  FROM topics
  GROUP BY
    topic
), subscribers AS (
  SELECT DISTINCT
    offsets_partition,
    group_id,
    member_id
  FROM member_subscriptions
), decoded AS (
  /* Live groups whose subscriptions are completely known: each member names topics, and none has a pattern. The patterns that a topology */
  /* of a Streams group may have are not in the tables. */
  SELECT
    m.offsets_partition,
    m.group_id
  FROM group_members AS m
  JOIN groups AS g
    ON g.offsets_partition = m.offsets_partition
    AND g.group_id = m.group_id
    AND g.group_type <> 'Streams'
  LEFT JOIN subscribers AS s
    ON s.offsets_partition = m.offsets_partition
    AND s.group_id = m.group_id
    AND s.member_id = m.member_id
  GROUP BY
    m.offsets_partition,
    m.group_id
  HAVING
    COUNT(
      CASE
        WHEN NOT s.member_id IS NULL AND COALESCE(m.subscribed_topic_regex, '') = ''
        THEN 1
      END
    ) = COUNT(*)
), subscribed AS (
  SELECT DISTINCT
    offsets_partition,
    group_id,
    topic
  FROM member_subscriptions
), limited AS (
  /* A cell is identified by its newest record. */
  /* The verdict is as of the last check: nothing is known after it, whatever the clock says. */
  SELECT
    LEAST(k.now_at, COALESCE(f.as_of, k.now_at), COALESCE(e.sampled_at, k.now_at)) AS instant,
    k.now_at,
    COALESCE(f.stale_reason, e.stale_reason) AS stale_reason,
    CASE
      WHEN f.blocked_since <= k.now_at - INTERVAL '1' MINUTE
      THEN f.blocked_since
    END AS blocked_since,
    CASE
      WHEN e.error IS NULL
      AND c.committed_offset >= e.last_stable_offset
      AND e.last_stable_offset < e.high_watermark
      THEN w.blocked_since
    END AS waits_since,
    e.last_stable_offset,
    c.offsets_partition * 281474976710656 + c.record_offset AS cell,
    c.commit_timestamp_ms,
    c.log_id,
    c.offsets_partition,
    c.group_id,
    c.topic,
    c.partition,
    c.committed_offset,
    COALESCE(e.place, -1) AS place,
    CASE
      WHEN e.error IS NULL AND c.committed_offset >= e.readable_end
      THEN LEAST(e.high_watermark, c.committed_offset)
      WHEN e.error IS NULL AND c.committed_offset >= 0
      THEN COALESCE(e.readable_end, e.high_watermark)
    END AS end_offset, /* At or after the readable end no message waits, whatever offset the group has committed there. */
    e.readable_end IS NULL
    AND e.last_stable_offset = e.high_watermark
    AND c.committed_offset = e.high_watermark - 1 AS is_perhaps_marker,
    CASE
      WHEN f.blocked_since <= k.now_at - INTERVAL '1' MINUTE
      THEN f.open_transaction
      ELSE e.open_transaction
    END AS open_transaction,
    CASE
      WHEN f.blocked_since <= k.now_at - INTERVAL '1' MINUTE
      THEN f.open_transaction_since
      ELSE e.open_transaction_since
    END AS open_transaction_since,
    e.log_start_offset,
    e.sampled_at,
    CASE
      WHEN NOT f.stale_reason IS NULL
      THEN f.stale_reason
      WHEN c.committed_offset < 0
      THEN 'no offset: ' || TRY_CAST(c.committed_offset AS TEXT) || ' was committed'
      WHEN n.there = 0 AND (
        e.topic IS NULL OR NOT e.error IS NULL
      )
      THEN 'its topic was deleted'
      WHEN e.topic IS NULL OR (
        e.error IS NULL AND e.high_watermark IS NULL
      )
      THEN 'its end was not sampled'
      WHEN NOT e.error IS NULL
      THEN 'its end is unknown: ' || e.error
      ELSE e.stale_reason
    END AS not_known,
    CASE
      WHEN NOT f.cause IS NULL
      THEN f.cause
      WHEN c.committed_offset < 0
      THEN NULL
      WHEN n.there = 0 AND (
        e.topic IS NULL OR NOT e.error IS NULL
      )
      THEN 'the topic ' || c.topic || ' was deleted'
      WHEN e.error = 'LEADER_NOT_AVAILABLE' AND NOT e.leader_id IS NULL
      THEN 'partitions that broker ' || TRY_CAST(e.leader_id AS TEXT) || ' led have no leader'
      WHEN e.error = 'REQUEST_TIMED_OUT' AND NOT e.leader_id IS NULL
      THEN 'partitions that broker ' || TRY_CAST(e.leader_id AS TEXT) || ' led do not answer in time'
      WHEN e.error = 'TOPIC_AUTHORIZATION_FAILED'
      THEN e.topic || ': ' || e.error
      WHEN NOT e.error IS NULL
      THEN e.topic || '-' || TRY_CAST(e.partition AS TEXT) || ': ' || e.error
      WHEN NOT e.stale_reason IS NULL
      THEN 'the job has not checked'
      WHEN c.record_timestamp < n.recreated_at
      OR (
        c.topic_id <> e.topic_id AND c.record_timestamp <= e.sampled_at
      )
      THEN 'the topic ' || c.topic || ' was recreated'
    END AS known_cause,
    n.recreated_at,
    COALESCE(g.member_count, 0) AS member_count,
    NOT d.group_id IS NULL AND u.group_id IS NULL AS is_abandoned,
    GREATEST(COALESCE(own.allowed_lag, std.allowed_lag, 0), 0) AS allowed_lag,
    COALESCE(own.minimum_complete, std.minimum_complete, TRY_CAST(0 AS DOUBLE)) AS minimum_complete,
    COALESCE(own.intervals, std.intervals, 10) AS intervals,
    COALESCE(own.window_seconds, std.window_seconds, 300) AS window_seconds,
    COALESCE(own.max_time_lag_seconds, std.max_time_lag_seconds) AS max_time_lag_seconds
  FROM committed_offsets AS c
  CROSS JOIN clock AS k
  LEFT JOIN freshness AS f
    ON f.offsets_partition = c.offsets_partition
  LEFT JOIN places AS e
    ON e.topic = c.topic AND e.partition = c.partition
  LEFT JOIN blocked_ends AS w
    ON w.topic = e.topic
    AND w.topic_id IS NOT DISTINCT FROM e.topic_id
    AND w.partition = e.partition
    AND w.last_stable_offset = e.last_stable_offset
  LEFT JOIN named AS n
    ON n.topic = c.topic
  LEFT JOIN groups AS g
    ON g.offsets_partition = c.offsets_partition AND g.group_id = c.group_id
  LEFT JOIN decoded AS d
    ON d.offsets_partition = c.offsets_partition AND d.group_id = c.group_id
  LEFT JOIN subscribed AS u
    ON u.offsets_partition = c.offsets_partition
    AND u.group_id = c.group_id
    AND u.topic = c.topic
  LEFT JOIN limits AS own
    ON own.group_id = c.group_id
  LEFT JOIN limits AS std
    ON std.group_id IS NULL
  WHERE
    c.in_coordinator_partition
), cells AS (
  /* Both Burrow and the job sample end offsets every ten seconds; this is the size of Burrow's ring. */
  SELECT
    l.*,
    instant - window_seconds * INTERVAL '1' SECOND AS window_start,
    sampled_at - (
      intervals - 1
    ) * INTERVAL '10' SECOND AS ring_start,
    instant - max_time_lag_seconds * INTERVAL '1' SECOND AS late_before,
    COALESCE(end_offset > committed_offset + allowed_lag, FALSE) AS is_waiting
  FROM limited AS l
), ordered AS (
  SELECT
    cell,
    record_offset,
    record_timestamp,
    committed_offset,
    commit_timestamp_ms,
    ROW_NUMBER() OVER (PARTITION BY cell ORDER BY record_offset DESC) AS nth,
    LAG(record_timestamp) OVER (PARTITION BY cell ORDER BY record_offset DESC) AS next_at,
    LEAD(committed_offset) OVER (PARTITION BY cell ORDER BY record_offset DESC) AS previous_offset
  FROM waiting_commits
), commits AS (
  SELECT
    o.cell,
    c.place,
    c.instant,
    c.is_waiting,
    o.record_offset,
    o.record_timestamp,
    o.committed_offset,
    o.commit_timestamp_ms,
    o.next_at,
    o.nth,
    o.nth <= c.intervals AS in_ring,
    CASE WHEN o.nth < c.intervals THEN o.previous_offset END AS previous_offset,
    CASE
      WHEN o.record_timestamp > c.window_start
      THEN 1
      WHEN o.next_at IS NULL OR o.next_at > c.window_start
      THEN 0
    END AS since_start,
    CASE
      WHEN o.record_timestamp <= c.sampled_at AND COALESCE(o.next_at > c.sampled_at, TRUE)
      THEN 1
    END AS stood_at_look
  FROM cells AS c
  JOIN ordered AS o
    ON o.cell = c.cell AND (
      o.nth <= c.intervals OR o.next_at > c.window_start
    )
  WHERE
    c.is_waiting
), counted AS (
  SELECT
    h.log_id,
    h.offsets_partition,
    h.group_id,
    h.topic,
    h.partition,
    COUNT(*) AS commits,
    MAX(h.commit_timestamp_ms) AS last_ms
  FROM offset_commits AS h
  LEFT JOIN tombstones AS d
    ON d.log_id = h.log_id
    AND d.offsets_partition = h.offsets_partition
    AND d.group_id = h.group_id
    AND d.topic = h.topic
    AND d.partition = h.partition
  WHERE
    h.record_offset > COALESCE(d.record_offset, -1)
  GROUP BY
    h.log_id,
    h.offsets_partition,
    h.group_id,
    h.topic,
    h.partition
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
  UNION ALL
  SELECT
    c.cell,
    LEAST(n.commits, c.intervals),
    NULL,
    n.last_ms
  FROM cells AS c
  JOIN counted AS n
    ON n.log_id = c.log_id
    AND n.offsets_partition = c.offsets_partition
    AND n.group_id = c.group_id
    AND n.topic = c.topic
    AND n.partition = c.partition
  WHERE
    NOT c.is_waiting
), ends AS (
  SELECT
    e.place,
    i.sampled_at,
    i.held_until,
    i.known_until,
    i.high_watermark,
    i.lowest_from,
    i.next_sampled_at,
    i.next_offset,
    i.next_lowest
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
)
SELECT
  j.group_id,
  j.topic,
  j.partition,
  v.level,
  j.verdict,
  j.verdict_reason,
  j.cause,
  j.status,
  j.status_reason,
  j.current_lag,
  j.messages_lost,
  CASE WHEN j.committed_offset >= 0 THEN j.committed_offset END AS committed_offset,
  j.commits,
  j.complete,
  j.first_commit_at_ms,
  j.last_commit_at_ms,
  j.lag_before,
  j.sampled_at,
  j.offsets_partition,
  j.instant AS as_of,
  j.is_stale
FROM judged AS j
JOIN verdicts AS v
  ON v.verdict = j.verdict
