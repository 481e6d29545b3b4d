-- The verdict and Burrow's status of `cells` (a committed offset at an instant, by number). Input: the `counts` of their commits, the
-- `commits` of cells where messages wait (the others are OK by every rule), and the `ends` of the logs, with numbered partitions (`place`).
-- Commits, ends and instants are sorted by time together: the last end before each is the current one at that time, for as long as it is
-- known to be valid.
moments AS (
  SELECT place, record_timestamp AS moment, 1 AS kind, cell, instant, record_offset, committed_offset, previous_offset, next_at, in_ring, since_start, stood_at_look,
         CAST(NULL AS TIMESTAMP) AS end_at
  FROM commits WHERE is_waiting
  UNION ALL
  SELECT c.place, CASE k.kind WHEN 2 THEN c.window_start WHEN 3 THEN c.ring_start ELSE c.late_before END, k.kind, c.cell, c.instant,
         NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM cells AS c CROSS JOIN (SELECT 2 AS kind UNION ALL SELECT 3 UNION ALL SELECT 4) AS k
  WHERE c.is_waiting
  UNION ALL
  SELECT place, sampled_at, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, sampled_at FROM ends
), placed AS (
  SELECT place, moment, kind, cell, instant, record_offset, committed_offset, previous_offset, next_at, in_ring, since_start, stood_at_look,
         max(end_at) OVER (PARTITION BY place ORDER BY moment NULLS FIRST, kind NULLS FIRST ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS end_at
  FROM moments WHERE moment IS NOT NULL AND place IS NOT NULL
), seen AS (
  SELECT p.cell, p.moment, p.kind, p.instant, p.record_offset, p.committed_offset, p.previous_offset, p.next_at, p.in_ring,
         p.since_start, p.stood_at_look, p.end_at, e.high_watermark, e.held_until, e.known_until, e.lowest_from, e.next_offset, e.next_lowest, e.next_sampled_at,
         CASE WHEN p.kind = 1 AND p.moment <= e.known_until THEN e.high_watermark END AS end_then,
         CASE WHEN p.kind = 1 AND p.moment <= e.known_until THEN greatest(0, e.high_watermark - p.committed_offset) END AS lag_then
  FROM placed AS p LEFT JOIN ends AS e ON e.place = p.place AND e.sampled_at = p.end_at
  WHERE p.kind > 0
), traced AS (
  SELECT s.*, min(CASE WHEN in_ring AND committed_offset < previous_offset THEN record_offset END) OVER (PARTITION BY cell) AS rewind_offset,
         last_value(CASE WHEN in_ring THEN lag_then END) IGNORE NULLS OVER (PARTITION BY cell ORDER BY coalesce(record_offset, -1) NULLS FIRST
           ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS previous_lag,
         lag(end_then) OVER (PARTITION BY cell ORDER BY coalesce(record_offset, -1) NULLS FIRST) AS previous_end
  FROM seen AS s
), before AS (
  -- From the ring; the lag at the start of the window; the lowest lag that a sample since then may have seen; how far the best commit since then
  -- stayed below the end at the commit before it; the lowest end in the ring; the end at late_before.
  SELECT cell,
         max(CASE WHEN record_offset = rewind_offset THEN previous_offset END) AS before_rewind,
         max(CASE WHEN in_ring AND record_offset >= rewind_offset THEN committed_offset END) AS best_since_rewind,
         min(CASE WHEN in_ring THEN lag_then END) AS lowest_lag,
         min(CASE WHEN in_ring THEN committed_offset END) = max(CASE WHEN in_ring THEN committed_offset END) AS is_stalled,
         max(CASE WHEN in_ring AND lag_then < previous_lag THEN 1 END) AS lag_fell,
         max(CASE WHEN since_start = 0 THEN committed_offset END) AS committed_before,
         max(CASE WHEN kind = 2 AND moment <= known_until THEN high_watermark END) AS end_before,
         max(CASE WHEN kind = 2 THEN CASE WHEN held_until > moment THEN high_watermark WHEN next_sampled_at <= instant THEN next_offset END END) AS end_after_start,
         min(CASE WHEN since_start = 1 THEN
               CASE WHEN held_until >= moment THEN high_watermark
                    WHEN next_sampled_at <= instant AND (next_at IS NULL OR next_at > next_sampled_at) THEN next_offset END - committed_offset END) AS lowest_since,
         max(CASE WHEN stood_at_look = 1 THEN committed_offset END) AS committed_at_look,
         max(CASE WHEN kind = 1 AND next_at IS NULL THEN lag_then END) AS lag_of_newest,
         min(CASE WHEN since_start = 1 THEN previous_end - committed_offset END) AS short_of_previous,
         max(CASE WHEN since_start = 1 AND previous_end IS NULL THEN 1 ELSE 0 END) AS has_unknown_previous,
         max(CASE WHEN kind = 3 AND end_at IS NOT NULL THEN CASE WHEN held_until >= moment THEN lowest_from ELSE next_lowest END END) AS lowest_end,
         max(CASE WHEN kind = 4 THEN
               CASE WHEN held_until >= moment OR next_sampled_at IS NULL OR next_sampled_at > least(instant, known_until) THEN CAST(high_watermark AS DOUBLE)
                    ELSE CAST(high_watermark AS DOUBLE) + CAST(next_offset - high_watermark AS DOUBLE)
                         * CAST(unix_micros(moment) - unix_micros(held_until) AS DOUBLE)
                         / nullif(CAST(unix_micros(next_sampled_at) - unix_micros(held_until) AS DOUBLE), 0) END END) AS late_end
  FROM traced GROUP BY cell
), lowest_ends AS (
  SELECT place, min(high_watermark) AS lowest_end FROM ends GROUP BY place
), facts AS (
  SELECT c.cell, c.instant, c.offsets_partition, c.group_id, c.topic, c.partition, c.committed_offset, c.not_known, c.known_cause, c.recreated_at, c.stale_reason, c.blocked_since, c.waits_since, c.last_stable_offset, c.is_perhaps_marker, c.open_transaction, c.open_transaction_since, c.now_at, c.sampled_at, c.member_count, c.is_abandoned, c.allowed_lag,
         c.minimum_complete, c.intervals, c.window_seconds, c.max_time_lag_seconds,
         coalesce(n.commits, 0) AS commits, CAST(coalesce(n.commits, 0) AS DOUBLE) / nullif(CAST(c.intervals AS DOUBLE), 0) AS complete,
         n.first_ms, n.last_ms, b.before_rewind, b.best_since_rewind, b.lowest_lag, b.is_stalled, b.lag_fell,
         greatest(0, coalesce(c.end_offset, c.committed_offset) - c.committed_offset) AS current_lag,
         -- Messages that the log no longer has do not wait.
         greatest(0, coalesce(c.end_offset, c.committed_offset) - greatest(c.committed_offset, coalesce(c.log_start_offset, 0))) AS readable_lag,
         CASE WHEN c.end_offset IS NOT NULL THEN greatest(0, c.log_start_offset - c.committed_offset) END AS messages_lost,
         coalesce(c.committed_offset > c.end_offset AND n.last_ms < unix_micros(c.sampled_at) div 1000 - 60000, false) AS is_beyond_end,
         c.end_offset, unix_micros(c.instant) div 1000000 * 1000 AS now_ms,
         coalesce(b.lowest_end, l.lowest_end) AS lowest_end,
         CASE WHEN b.end_before IS NOT NULL AND b.committed_before IS NOT NULL THEN greatest(0, b.end_before - b.committed_before) END AS lag_before,
         b.end_after_start - b.committed_before AS most_before, b.lag_of_newest, c.end_offset - b.committed_at_look AS lag_at_look, b.has_unknown_previous,
         -- As with Kafka's replicas: one that reaches the log end of its previous fetch is in sync, although the log has grown since.
         coalesce(least(b.lowest_since, b.end_after_start - b.committed_before, b.short_of_previous) <= c.allowed_lag, false) AS had_caught_up,
         greatest(c.committed_offset, c.log_start_offset) < b.late_end AS is_late
  FROM cells AS c
  LEFT JOIN counts AS n ON n.cell = c.cell
  LEFT JOIN before AS b ON b.cell = c.cell
  LEFT JOIN lowest_ends AS l ON l.place = c.place
), burrow AS (
  SELECT f.*, CASE
      WHEN commits = 0 THEN 'OK'
      WHEN complete < minimum_complete THEN 'OK'
      WHEN current_lag <= allowed_lag THEN 'OK'
      WHEN now_ms - last_ms > last_ms - first_ms AND lowest_end > committed_offset THEN 'STOP'
      WHEN best_since_rewind < before_rewind THEN 'REWIND'
      WHEN lowest_lag <= allowed_lag THEN 'OK'
      WHEN is_stalled THEN 'STALL'
      WHEN lag_fell = 1 THEN 'OK'
      ELSE 'WARN' END AS status,
    CASE
      WHEN commits = 0 THEN 'the history has no commit'
      WHEN complete < minimum_complete THEN 'too few commits to judge'
      WHEN current_lag <= allowed_lag THEN 'nothing waits'
      WHEN now_ms - last_ms > last_ms - first_ms AND lowest_end > committed_offset THEN
        CASE WHEN commits = 1 THEN 'its only commit was ' || CAST((now_ms - last_ms) div 1000 AS STRING) || ' s ago, and messages wait'
             ELSE 'no commit for ' || CAST((now_ms - last_ms) div 1000 AS STRING) || ' s, longer than its last ' || CAST(commits AS STRING)
                         || ' commits took together (' || CAST((last_ms - first_ms) div 1000 AS STRING) || ' s), and messages wait' END
      WHEN best_since_rewind < before_rewind THEN
        'moved back from ' || CAST(before_rewind AS STRING) || ', and has reached ' || CAST(best_since_rewind AS STRING) || ' since'
      WHEN lowest_lag <= allowed_lag THEN 'caught up within its last commits'
      WHEN is_stalled THEN 'commits continue, but always with the same offset ' || CAST(committed_offset AS STRING)
      WHEN lag_fell = 1 THEN 'its lag fell within its last commits'
      ELSE 'commits advance, but the lag never fell in the last ' || CAST(commits AS STRING) || ' commits' END AS status_reason
  FROM facts AS f
), first_verdicts AS (
  SELECT b.*, CASE WHEN open_transaction IS NULL THEN 'an open transaction' ELSE 'the open transaction ' || open_transaction END AS holder,
    CASE WHEN open_transaction_since IS NULL THEN '' ELSE '; it has been open for ' || CAST((unix_micros(now_at) - unix_micros(open_transaction_since)) div 1000000 AS STRING) || ' s' END AS open_since,
    CASE
      WHEN not_known IS NOT NULL THEN 'unknown'
      WHEN is_beyond_end AND NOT is_abandoned THEN 'beyond the end'
      -- What the group did after the transaction's start, even a reset, cannot be read.
      WHEN blocked_since IS NOT NULL THEN 'blocked'
      WHEN readable_lag <= allowed_lag THEN 'ok'
      WHEN is_abandoned THEN 'abandoned'
      -- A live read_committed consumer must wait there. Less than a minute is normal.
      WHEN waits_since IS NOT NULL AND member_count > 0 THEN CASE WHEN waits_since <= instant - INTERVAL '1' MINUTE THEN 'waiting' ELSE 'ok' END
      WHEN commits = 0 THEN 'unknown'
      WHEN member_count = 0 AND now_ms - last_ms > window_seconds * 1000 THEN 'dead'
      WHEN status = 'REWIND' THEN 'rewound'
      -- A group that has just started has no usual commit interval to compare with.
      WHEN (status = 'STOP' OR (status = 'STALL' AND commits = 1)) AND commits < intervals
        AND now_ms - last_ms <= CASE WHEN commits = 1 THEN window_seconds ELSE least(window_seconds, 60) END * 1000 THEN 'unknown'
      WHEN status = 'STOP' THEN 'stopped'
      WHEN status = 'STALL' THEN 'stalled'
      WHEN is_late THEN 'late'
      WHEN had_caught_up THEN 'ok'
      -- Only if samples and commits leave no doubt: between two samples the end of a busy log is unknown.
      WHEN lag_of_newest > most_before AND has_unknown_previous = 0 THEN 'falling behind'
      WHEN lag_at_look < lag_before THEN 'catching up'
      ELSE 'ok' END AS found_verdict
  FROM burrow AS b
), decided AS (
  -- Something that may not be a message makes no group bad.
  SELECT t.*, CASE WHEN is_perhaps_marker AND found_verdict IN ('abandoned', 'dead', 'stopped', 'stalled', 'late', 'falling behind') THEN 'unknown' ELSE found_verdict END AS verdict
  FROM first_verdicts AS t
), judged AS (
  SELECT instant, now_at, offsets_partition, group_id, topic, partition, status, status_reason, verdict,
         CASE verdict
           WHEN 'unknown' THEN CASE
             WHEN not_known IS NOT NULL THEN not_known
             WHEN found_verdict <> 'unknown' THEN 'at most 1 message waits, perhaps only a transaction marker: the job has not read there'
             WHEN commits = 0 THEN 'the history has no commit of this offset'
             ELSE 'messages wait, and ' || CASE WHEN commits = 1 THEN 'its only commit' ELSE 'the last of its ' || CAST(commits AS STRING) || ' commits' END
                         || ' was ' || CAST(greatest(0, (now_ms - last_ms) div 1000) AS STRING) || ' s ago: too few commits to judge whether it stopped' END
           WHEN 'blocked' THEN holder || ' blocks the commits of the last ' || CAST((unix_micros(now_at) - unix_micros(blocked_since)) div 1000000 AS STRING)
                                        || ' s; before that, the group had committed ' || CAST(committed_offset AS STRING) || open_since
           WHEN 'abandoned' THEN CAST(readable_lag AS STRING) || CASE WHEN readable_lag = 1 THEN ' message waits' ELSE ' messages wait' END
                                        || ', and no member subscribes to the topic any more'
           WHEN 'waiting' THEN 'it has reached the last stable offset ' || CAST(last_stable_offset AS STRING) || ', where ' || holder || ' has blocked the log for '
                                      || CAST((unix_micros(instant) - unix_micros(waits_since)) div 1000000 AS STRING) || ' s' || open_since
           WHEN 'beyond the end' THEN CAST(committed_offset AS STRING) || ' is committed, and the log ends at ' || CAST(end_offset AS STRING)
           WHEN 'dead' THEN 'messages wait, the group has no member, and nothing was committed for ' || CAST((now_ms - last_ms) div 1000 AS STRING) || ' s'
           WHEN 'rewound' THEN status_reason
           WHEN 'stopped' THEN status_reason
           WHEN 'stalled' THEN status_reason
           WHEN 'late' THEN 'messages wait that were written more than ' || CAST(max_time_lag_seconds AS STRING) || ' s ago'
           WHEN 'falling behind' THEN 'its lag rose from ' || CAST(most_before AS STRING) || ' or less to ' || CAST(lag_of_newest AS STRING) || ' or more in '
                                             || CAST(window_seconds AS STRING) || ' s'
           WHEN 'catching up' THEN 'its lag fell from ' || CAST(lag_before AS STRING) || ' or more to ' || CAST(lag_at_look AS STRING) || ' in '
                                          || CAST(window_seconds AS STRING) || ' s'
           ELSE CASE WHEN readable_lag <= allowed_lag
                       THEN 'nothing waits' || CASE WHEN messages_lost > 0 THEN '; ' || CAST(messages_lost AS STRING) || CASE WHEN messages_lost = 1 THEN ' message was' ELSE ' messages were' END || ' deleted unread' ELSE '' END
                                   || CASE WHEN is_abandoned THEN ', and no member subscribes to the topic any more' ELSE '' END
                     WHEN waits_since IS NOT NULL AND member_count > 0 THEN 'it has reached the last stable offset, where a transaction is open'
                     WHEN had_caught_up THEN 'caught up within the last ' || CAST(window_seconds AS STRING) || ' s'
                     WHEN lag_before IS NULL THEN 'its lag ' || CAST(window_seconds AS STRING) || ' s ago is unknown'
                     WHEN lag_before = current_lag AND most_before = current_lag THEN 'its lag stays at ' || CAST(current_lag AS STRING)
                     ELSE 'its lag is ' || CAST(current_lag AS STRING) || ', and was ' || CAST(lag_before AS STRING)
                                 || CASE WHEN most_before IS NULL THEN ' or more ' WHEN most_before > lag_before THEN ' to ' || CAST(most_before AS STRING) || ' ' ELSE ' ' END
                                 || CAST(window_seconds AS STRING) || ' s ago' END
         END AS verdict_reason,
         CASE verdict
           WHEN 'blocked' THEN CASE WHEN open_transaction IS NULL THEN holder || ' on __consumer_offsets-' || CAST(offsets_partition AS STRING) ELSE holder END
           WHEN 'waiting' THEN CASE WHEN open_transaction IS NULL THEN holder || ' on ' || topic || '-' || CAST(partition AS STRING) ELSE holder END
           WHEN 'ok' THEN NULL
           WHEN 'catching up' THEN NULL
           WHEN 'abandoned' THEN NULL
           -- No group can return to an offset that a recreated log does not reach.
           ELSE CASE WHEN verdict = 'rewound' AND known_cause IS NULL AND first_ms < unix_micros(recreated_at) div 1000 AND before_rewind > end_offset
                     THEN 'the topic ' || topic || ' was recreated' ELSE known_cause END
         END AS cause,
         readable_lag AS current_lag, messages_lost, committed_offset, commits, complete, first_ms AS first_commit_at_ms, last_ms AS last_commit_at_ms, lag_before, sampled_at, stale_reason IS NOT NULL AS is_stale
  FROM decided
)
