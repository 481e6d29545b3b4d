-- One row per change of a group's verdict in the last day, so that you can raise an alert once. The verdict is computed at the end of each
-- minute with a commit of the group or a sample of its partitions. It uses the present thresholds and windows of at most 50 minutes. A
-- partition is abandoned only where the history has every member of that time with its subscription. The verdict is the worst one of the
-- group's partitions. What group_status reports for a group itself (unstable; a partition that was never committed) has no history.
--
--   changed_at TIMESTAMP: End of the minute
--   group_id STRING: Group id
--   level STRING: Severity of the verdict: OK, UNKNOWN, WARN or ERR
--   verdict STRING: The verdict; the view verdicts lists all of them with their meaning
--   previous_level STRING: Level before the change; null for the first row of the group
--   previous_verdict STRING: Verdict before the change; null for the first row of the group
--   reason STRING: Reason for the verdict, as text
--   topic STRING: Topic of the partition that decided the verdict
--   partition INT: Partition that decided the verdict
--   total_lag BIGINT: Sum of the known lags of the group's partitions, in messages; null if none is known
WITH
-- @include minutes
, group_minutes AS (
  SELECT DISTINCT offsets_partition, group_id, minute FROM busy
), points AS (
  SELECT f.offsets_partition, f.group_id, f.topic, f.partition, g.minute
  FROM first_commits AS f
  JOIN group_minutes AS g ON g.offsets_partition = f.offsets_partition AND g.group_id = f.group_id AND g.minute >= f.minute
),
-- @include standing
,
-- @include limits
, member_counts AS (
  SELECT offsets_partition, group_id, record_timestamp AS moment, 0 AS kind, log_id, record_offset FROM group_history
  UNION ALL
  SELECT offsets_partition, group_id, minute + INTERVAL '1' MINUTE, 1, NULL, NULL FROM group_minutes
), counted AS (
  SELECT offsets_partition, group_id, moment, kind,
         last_value(log_id) IGNORE NULLS OVER (PARTITION BY offsets_partition, group_id ORDER BY moment NULLS FIRST, kind DESC, coalesce(record_offset, -1) NULLS FIRST
           ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS log_id,
         last_value(record_offset) IGNORE NULLS OVER (PARTITION BY offsets_partition, group_id ORDER BY moment NULLS FIRST, kind DESC, coalesce(record_offset, -1) NULLS FIRST
           ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS record_offset
  FROM member_counts
), sizes AS (
  SELECT c.offsets_partition, c.group_id, c.moment AS instant, CASE WHEN h.is_removed THEN 0 ELSE coalesce(h.member_count, 0) END AS member_count, h.group_type
  FROM counted AS c
  LEFT JOIN group_history AS h
    ON h.offsets_partition = c.offsets_partition AND h.group_id = c.group_id AND h.log_id = c.log_id AND h.record_offset = c.record_offset
  WHERE c.kind = 1
), memberships AS (
  -- The topics that a member subscribed to after each change and before: ? if unknown, empty if there was no such member.
  SELECT m.*, coalesce(lag(topics) OVER (PARTITION BY log_id, offsets_partition, group_id, member_id ORDER BY record_offset NULLS FIRST), '') AS had_topics
  FROM (
    SELECT log_id, offsets_partition, group_id, member_id, record_offset, record_timestamp,
           CASE WHEN change = 'left' THEN ''
                WHEN coalesce(subscribed_topics, '') = '' OR coalesce(subscribed_topic_regex, '') <> '' THEN '?'
                ELSE ',' || subscribed_topics || ',' END AS topics
    FROM member_history
  ) AS m
), subscriptions AS (
  SELECT m.log_id, m.offsets_partition, m.group_id, t.topic, m.record_timestamp AS moment, 0 AS kind, m.record_offset,
         CASE WHEN m.topics = '' THEN 0 ELSE 1 END - CASE WHEN m.had_topics = '' THEN 0 ELSE 1 END AS members,
         CASE WHEN m.topics = '?' OR contains(m.topics, ',' || t.topic || ',') THEN 1 ELSE 0 END
         - CASE WHEN m.had_topics = '?' OR contains(m.had_topics, ',' || t.topic || ',') THEN 1 ELSE 0 END AS may_read
  FROM memberships AS m
  JOIN (SELECT DISTINCT offsets_partition, group_id, topic FROM first_commits) AS t ON t.offsets_partition = m.offsets_partition AND t.group_id = m.group_id
  WHERE m.topics <> m.had_topics
  UNION ALL
  SELECT DISTINCT log_id, offsets_partition, group_id, topic, minute + INTERVAL '1' MINUTE, 1, NULL, 0, 0 FROM standing
), subscribed AS (
  SELECT log_id, offsets_partition, group_id, topic, moment AS instant, kind,
         sum(members) OVER (PARTITION BY log_id, offsets_partition, group_id, topic ORDER BY moment NULLS FIRST, kind DESC, coalesce(record_offset, -1) NULLS FIRST
           ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS members,
         sum(may_read) OVER (PARTITION BY log_id, offsets_partition, group_id, topic ORDER BY moment NULLS FIRST, kind DESC, coalesce(record_offset, -1) NULLS FIRST
           ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS may_read
  FROM subscriptions
), places AS (
  SELECT topic, topic_id, partition, row_number() OVER (ORDER BY topic NULLS FIRST, coalesce(topic_id, '') NULLS FIRST, partition NULLS FIRST) AS place
  FROM (SELECT DISTINCT topic, topic_id, partition FROM end_intervals) AS p
), limited AS (
  SELECT row_number() OVER (ORDER BY s.offsets_partition NULLS FIRST, s.group_id NULLS FIRST, s.topic NULLS FIRST, s.partition NULLS FIRST, s.minute NULLS FIRST) AS cell, coalesce(e.place, -1) AS place,
         -- As of the last check, as group_status judged at that time.
         least(s.minute + INTERVAL '1' MINUTE, s.held_until) AS instant, s.log_id, s.offsets_partition, s.group_id, s.topic, s.partition, s.committed_offset,
         CASE WHEN s.committed_offset >= s.readable_end THEN least(s.high_watermark, s.committed_offset)
              WHEN s.committed_offset >= 0 THEN coalesce(s.readable_end, s.high_watermark) END AS end_offset,
         s.readable_end IS NULL AND s.last_stable_offset = s.high_watermark AND s.committed_offset = s.high_watermark - 1 AS is_perhaps_marker,
         CAST(NULL AS STRING) AS open_transaction, CAST(NULL AS TIMESTAMP) AS open_transaction_since, s.log_start_offset, least(s.held_until, s.minute + INTERVAL '1' MINUTE) AS sampled_at, s.record_offset,
         CASE WHEN s.committed_offset < 0 THEN 'no offset: ' || CAST(s.committed_offset AS STRING) || ' was committed'
              WHEN s.high_watermark IS NULL THEN 'its end was not sampled' END AS not_known,
         CAST(NULL AS STRING) AS known_cause, CAST(NULL AS TIMESTAMP) AS recreated_at, CAST(NULL AS STRING) AS stale_reason, CASE WHEN f.blocked_since <= s.minute THEN f.blocked_since END AS blocked_since,
         CASE WHEN s.committed_offset >= s.last_stable_offset AND s.last_stable_offset < s.high_watermark THEN w.blocked_since END AS waits_since, s.last_stable_offset, s.minute + INTERVAL '1' MINUTE AS now_at,
         coalesce(z.member_count, 0) AS member_count,
         coalesce(z.group_type <> 'Streams' AND z.member_count > 0 AND u.members = z.member_count AND u.may_read = 0, false) AS is_abandoned,
         greatest(coalesce(own.allowed_lag, std.allowed_lag, 0), 0) AS allowed_lag,
         coalesce(own.minimum_complete, std.minimum_complete, CAST(0 AS DOUBLE)) AS minimum_complete,
         coalesce(own.intervals, std.intervals, 10) AS intervals,
         coalesce(own.window_seconds, std.window_seconds, 300) AS window_seconds,
         coalesce(own.max_time_lag_seconds, std.max_time_lag_seconds) AS max_time_lag_seconds
  FROM standing AS s
  LEFT JOIN places AS e ON e.topic = s.topic AND e.topic_id IS NOT DISTINCT FROM s.topic_id AND e.partition = s.partition
  LEFT JOIN sizes AS z ON z.offsets_partition = s.offsets_partition AND z.group_id = s.group_id AND z.instant = s.minute + INTERVAL '1' MINUTE
  LEFT JOIN freshness AS f ON f.offsets_partition = s.offsets_partition
  LEFT JOIN blocked_ends AS w
    ON w.topic = s.topic AND w.topic_id IS NOT DISTINCT FROM s.topic_id AND w.partition = s.partition AND w.last_stable_offset = s.last_stable_offset
  LEFT JOIN subscribed AS u
    ON u.kind = 1 AND u.log_id = s.log_id AND u.offsets_partition = s.offsets_partition AND u.group_id = s.group_id AND u.topic = s.topic
   AND u.instant = s.minute + INTERVAL '1' MINUTE
  LEFT JOIN limits AS own ON own.group_id = s.group_id
  LEFT JOIN limits AS std ON std.group_id IS NULL
  WHERE NOT s.is_tombstone
), cells AS (
  SELECT l.*, instant - window_seconds * INTERVAL '1' SECOND AS window_start,
         sampled_at - (intervals - 1) * INTERVAL '10' SECOND AS ring_start,
         instant - max_time_lag_seconds * INTERVAL '1' SECOND AS late_before,
         coalesce(end_offset > committed_offset + allowed_lag, false) AS is_waiting
  FROM limited AS l
), stories AS (
  -- Records of one cell in one log share a number.
  SELECT log_id, offsets_partition, group_id, topic, partition, row_number() OVER (ORDER BY log_id NULLS FIRST, offsets_partition NULLS FIRST, group_id NULLS FIRST, topic NULLS FIRST, partition NULLS FIRST) AS story
  FROM (SELECT DISTINCT log_id, offsets_partition, group_id, topic, partition FROM offset_commits) AS d
), numbered AS (
  SELECT t.story, h.record_offset, h.record_timestamp, h.is_tombstone, h.committed_offset, h.commit_timestamp_ms,
         row_number() OVER (PARTITION BY t.story ORDER BY h.record_offset NULLS FIRST) AS seq,
         lead(h.record_timestamp) OVER (PARTITION BY t.story ORDER BY h.record_offset NULLS FIRST) AS next_at,
         lag(h.committed_offset) OVER (PARTITION BY t.story ORDER BY h.record_offset NULLS FIRST) AS previous_offset,
         max(CASE WHEN h.is_tombstone THEN h.record_offset ELSE -1 END) OVER (PARTITION BY t.story
           ORDER BY h.record_offset NULLS FIRST ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS deleted_offset
  FROM stories AS t
  JOIN offset_commits AS h
    ON h.log_id = t.log_id AND h.offsets_partition = t.offsets_partition AND h.group_id = t.group_id AND h.topic = t.topic AND h.partition = t.partition
), latest AS (
  SELECT c.cell, c.place, c.instant, c.now_at, c.intervals, c.window_start, c.sampled_at, c.is_waiting, n.story, n.seq AS last_seq, n.deleted_offset
  FROM cells AS c
  JOIN stories AS t
    ON t.log_id = c.log_id AND t.offsets_partition = c.offsets_partition AND t.group_id = c.group_id AND t.topic = c.topic AND t.partition = c.partition
  JOIN numbered AS n ON n.story = t.story AND n.record_offset = c.record_offset
), sought AS (
  -- The ring fits into two blocks of 64 commits, the rest of the window into two hours.
  SELECT l.*, k.by_hour, CASE k.by_hour WHEN 1 THEN unix_micros(now_at) div 3600000000 ELSE last_seq div 64 END - k.back AS bucket
  FROM latest AS l CROSS JOIN (SELECT 0 AS by_hour, 0 AS back UNION ALL SELECT 0, 1 UNION ALL SELECT 1, 0 UNION ALL SELECT 1, 1) AS k
), shelved AS (
  SELECT n.*, k.by_hour, CASE k.by_hour WHEN 1 THEN unix_micros(next_at) div 3600000000 ELSE seq div 64 END AS bucket
  FROM numbered AS n CROSS JOIN (SELECT 0 AS by_hour UNION ALL SELECT 1) AS k
), commits AS (
  SELECT c.cell, c.place, c.instant, c.is_waiting, n.record_offset, n.record_timestamp, n.committed_offset, n.commit_timestamp_ms,
         CASE WHEN n.next_at > c.now_at THEN NULL ELSE n.next_at END AS next_at, c.last_seq - n.seq + 1 AS nth, c.last_seq - n.seq < c.intervals AS in_ring,
         CASE WHEN c.last_seq - n.seq + 1 < c.intervals THEN n.previous_offset END AS previous_offset,
         CASE WHEN n.record_timestamp > c.window_start THEN 1
              WHEN n.next_at IS NULL OR n.next_at > c.window_start OR n.seq = c.last_seq THEN 0 END AS since_start,
         CASE WHEN n.record_timestamp <= c.sampled_at AND (n.seq = c.last_seq OR coalesce(n.next_at > c.sampled_at, true)) THEN 1 END AS stood_at_look
  FROM sought AS c
  JOIN shelved AS n ON n.story = c.story AND n.by_hour = c.by_hour AND n.bucket = c.bucket
  WHERE n.seq <= c.last_seq AND n.record_offset > c.deleted_offset AND (n.seq > c.last_seq - c.intervals OR n.next_at > c.window_start)
    AND (c.by_hour = 0 OR n.seq div 64 < c.last_seq div 64 - 1)
), counts AS (
  SELECT cell, count(*) AS commits, max(CASE WHEN previous_offset IS NULL THEN commit_timestamp_ms END) AS first_ms,
         max(CASE WHEN nth = 1 THEN commit_timestamp_ms END) AS last_ms
  FROM commits WHERE in_ring GROUP BY cell
), ends AS (
  SELECT e.place, i.sampled_at, i.held_until, i.known_until, i.high_watermark, i.high_watermark AS lowest_from, i.next_sampled_at, i.next_offset,
         i.next_offset AS next_lowest
  FROM end_intervals AS i
  JOIN places AS e ON e.topic = i.topic AND e.topic_id IS NOT DISTINCT FROM i.topic_id AND e.partition = i.partition
),
-- @include judged
, ranked AS (
  SELECT j.*, row_number() OVER (PARTITION BY j.now_at, j.offsets_partition, j.group_id ORDER BY v.rank DESC, j.current_lag DESC, j.topic NULLS FIRST, j.partition NULLS FIRST) AS verdict_nth
  FROM judged AS j JOIN verdicts AS v ON v.verdict = j.verdict
), folded AS (
  -- Where the end is unknown, current_lag is 0, and messages_lost is null.
  SELECT now_at, offsets_partition, group_id, CAST(sum(CASE WHEN messages_lost IS NOT NULL THEN current_lag END) AS BIGINT) AS total_lag,
         max(CASE WHEN verdict_nth = 1 THEN verdict END) AS verdict, max(CASE WHEN verdict_nth = 1 THEN verdict_reason END) AS reason,
         max(CASE WHEN verdict_nth = 1 THEN topic END) AS topic, max(CASE WHEN verdict_nth = 1 THEN partition END) AS partition
  FROM ranked GROUP BY now_at, offsets_partition, group_id
), told AS (
  SELECT g.offsets_partition, g.group_id, g.minute + INTERVAL '1' MINUTE AS instant, v.level, v.verdict,
         coalesce(f.reason, 'no committed offset') AS reason, f.topic, f.partition, f.total_lag
  FROM group_minutes AS g
  LEFT JOIN folded AS f
    ON f.offsets_partition = g.offsets_partition AND f.group_id = g.group_id AND f.now_at = g.minute + INTERVAL '1' MINUTE
  JOIN verdicts AS v ON v.verdict = coalesce(f.verdict, 'unknown')
), compared AS (
  SELECT t.*, lag(level) OVER (PARTITION BY offsets_partition, group_id ORDER BY instant NULLS FIRST) AS previous_level,
         lag(verdict) OVER (PARTITION BY offsets_partition, group_id ORDER BY instant NULLS FIRST) AS previous_verdict
  FROM told AS t
)
SELECT instant AS changed_at, group_id, level, verdict, previous_level, previous_verdict, reason, topic, partition, total_lag
FROM compared WHERE previous_verdict IS NULL OR previous_verdict <> verdict
