-- One row per committed offset: its verdict with the reason, and Burrow's status for comparison. Thresholds come from your table
-- `thresholds`: the row of the group, else the row without a group, else Burrow's own. A group has caught up if no message waits, or if a
-- commit reached the end offset that the log had at the commit before it. Kafka judges its replicas the same way.
--
--   group_id STRING: Group id
--   topic STRING: Topic
--   partition INT: Partition of the topic
--   level STRING: Severity of the verdict: OK, UNKNOWN, WARN or ERR
--   verdict STRING: The verdict; the view verdicts lists all of them with their meaning
--   verdict_reason STRING: Reason for the verdict, as text
--   cause STRING: Cause shared with the verdicts of other groups: an open transaction and its place, a deleted or recreated topic, a broker whose partitions have no leader, or a job that has not checked; null if none is known
--   status STRING: Burrow's status: OK, WARN, STOP, STALL or REWIND. It does not affect the verdict
--   status_reason STRING: Reason for Burrow's status, as text
--   current_lag BIGINT: Waiting messages: from the newest commit, or the start of the log if that is later, to the newest end offset; 0 if the end is unknown
--   messages_lost BIGINT: Messages that the log no longer has and that the group never read; null if the end is unknown
--   committed_offset BIGINT: Newest committed offset
--   commits BIGINT: Number of commits in the window
--   complete DOUBLE: Commits in the window as a share of its size
--   first_commit_at_ms BIGINT: Time of the first commit in the window, in milliseconds since 1970; null if no message waits
--   last_commit_at_ms BIGINT: Time of the last commit in the window, in milliseconds since 1970
--   lag_before BIGINT: Lag window_seconds ago, as a lower bound; null if it is unknown, or no message waits
--   sampled_at TIMESTAMP: Time at which the end offset was sampled
--   offsets_partition INT: Offsets partition of the group
--   as_of TIMESTAMP: Time up to which the data is complete: the earlier of the last check of the group's offsets partition and the last sample of the end offset
--   is_stale BOOLEAN: Whether as_of is too old to describe the present; the verdict is then unknown
WITH
-- @include limits
, places AS (
  SELECT p.*, row_number() OVER (ORDER BY topic NULLS FIRST, partition NULLS FIRST) AS place FROM partition_ends AS p
),
-- @include tombstones
,
-- @include named
, subscribers AS (
  SELECT DISTINCT offsets_partition, group_id, member_id FROM member_subscriptions
), decoded AS (
  -- Live groups whose subscriptions are completely known: each member names topics, and none has a pattern. The patterns that a topology
  -- of a Streams group may have are not in the tables.
  SELECT m.offsets_partition, m.group_id
  FROM group_members AS m
  JOIN groups AS g ON g.offsets_partition = m.offsets_partition AND g.group_id = m.group_id AND g.group_type <> 'Streams'
  LEFT JOIN subscribers AS s ON s.offsets_partition = m.offsets_partition AND s.group_id = m.group_id AND s.member_id = m.member_id
  GROUP BY m.offsets_partition, m.group_id
  HAVING count(CASE WHEN s.member_id IS NOT NULL AND coalesce(m.subscribed_topic_regex, '') = '' THEN 1 END) = count(*)
), subscribed AS (
  SELECT DISTINCT offsets_partition, group_id, topic FROM member_subscriptions
), limited AS (
  -- A cell is identified by its newest record.
  -- The verdict is as of the last check: nothing is known after it, whatever the clock says.
  SELECT least(k.now_at, coalesce(f.as_of, k.now_at), coalesce(e.sampled_at, k.now_at)) AS instant, k.now_at,
         coalesce(f.stale_reason, e.stale_reason) AS stale_reason,
         CASE WHEN f.blocked_since <= k.now_at - INTERVAL '1' MINUTE THEN f.blocked_since END AS blocked_since,
         CASE WHEN e.error IS NULL AND c.committed_offset >= e.last_stable_offset AND e.last_stable_offset < e.high_watermark THEN w.blocked_since END AS waits_since,
         e.last_stable_offset, c.offsets_partition * 281474976710656 + c.record_offset AS cell, c.commit_timestamp_ms,
         c.log_id, c.offsets_partition, c.group_id, c.topic, c.partition, c.committed_offset, coalesce(e.place, -1) AS place,
         -- At or after the readable end no message waits, whatever offset the group has committed there.
         CASE WHEN e.error IS NULL AND c.committed_offset >= e.readable_end THEN least(e.high_watermark, c.committed_offset)
              WHEN e.error IS NULL AND c.committed_offset >= 0 THEN coalesce(e.readable_end, e.high_watermark) END AS end_offset,
         e.readable_end IS NULL AND e.last_stable_offset = e.high_watermark AND c.committed_offset = e.high_watermark - 1 AS is_perhaps_marker,
         CASE WHEN f.blocked_since <= k.now_at - INTERVAL '1' MINUTE THEN f.open_transaction ELSE e.open_transaction END AS open_transaction,
         CASE WHEN f.blocked_since <= k.now_at - INTERVAL '1' MINUTE THEN f.open_transaction_since ELSE e.open_transaction_since END AS open_transaction_since,
         e.log_start_offset, e.sampled_at,
         CASE WHEN f.stale_reason IS NOT NULL THEN f.stale_reason
              WHEN c.committed_offset < 0 THEN 'no offset: ' || CAST(c.committed_offset AS STRING) || ' was committed'
              WHEN n.there = 0 AND (e.topic IS NULL OR e.error IS NOT NULL) THEN 'its topic was deleted'
              WHEN e.topic IS NULL OR (e.error IS NULL AND e.high_watermark IS NULL) THEN 'its end was not sampled'
              WHEN e.error IS NOT NULL THEN 'its end is unknown: ' || e.error
              ELSE e.stale_reason
         END AS not_known,
         CASE WHEN f.cause IS NOT NULL THEN f.cause
              WHEN c.committed_offset < 0 THEN NULL
              WHEN n.there = 0 AND (e.topic IS NULL OR e.error IS NOT NULL) THEN 'the topic ' || c.topic || ' was deleted'
              WHEN e.error = 'LEADER_NOT_AVAILABLE' AND e.leader_id IS NOT NULL THEN 'partitions that broker ' || CAST(e.leader_id AS STRING) || ' led have no leader'
              WHEN e.error = 'REQUEST_TIMED_OUT' AND e.leader_id IS NOT NULL THEN 'partitions that broker ' || CAST(e.leader_id AS STRING) || ' led do not answer in time'
              WHEN e.error = 'TOPIC_AUTHORIZATION_FAILED' THEN e.topic || ': ' || e.error
              WHEN e.error IS NOT NULL THEN e.topic || '-' || CAST(e.partition AS STRING) || ': ' || e.error
              WHEN e.stale_reason IS NOT NULL THEN 'the job has not checked'
              WHEN c.record_timestamp < n.recreated_at OR (c.topic_id <> e.topic_id AND c.record_timestamp <= e.sampled_at) THEN 'the topic ' || c.topic || ' was recreated'
         END AS known_cause, n.recreated_at,
         coalesce(g.member_count, 0) AS member_count, d.group_id IS NOT NULL AND u.group_id IS NULL AS is_abandoned,
         greatest(coalesce(own.allowed_lag, std.allowed_lag, 0), 0) AS allowed_lag,
         coalesce(own.minimum_complete, std.minimum_complete, CAST(0 AS DOUBLE)) AS minimum_complete,
         coalesce(own.intervals, std.intervals, 10) AS intervals,
         coalesce(own.window_seconds, std.window_seconds, 300) AS window_seconds,
         coalesce(own.max_time_lag_seconds, std.max_time_lag_seconds) AS max_time_lag_seconds
  FROM committed_offsets AS c CROSS JOIN clock AS k
  LEFT JOIN freshness AS f ON f.offsets_partition = c.offsets_partition
  LEFT JOIN places AS e ON e.topic = c.topic AND e.partition = c.partition
  LEFT JOIN blocked_ends AS w
    ON w.topic = e.topic AND w.topic_id IS NOT DISTINCT FROM e.topic_id AND w.partition = e.partition AND w.last_stable_offset = e.last_stable_offset
  LEFT JOIN named AS n ON n.topic = c.topic
  LEFT JOIN groups AS g ON g.offsets_partition = c.offsets_partition AND g.group_id = c.group_id
  LEFT JOIN decoded AS d ON d.offsets_partition = c.offsets_partition AND d.group_id = c.group_id
  LEFT JOIN subscribed AS u ON u.offsets_partition = c.offsets_partition AND u.group_id = c.group_id AND u.topic = c.topic
  LEFT JOIN limits AS own ON own.group_id = c.group_id
  LEFT JOIN limits AS std ON std.group_id IS NULL
  WHERE c.in_coordinator_partition
), cells AS (
  -- Both Burrow and the job sample end offsets every ten seconds; this is the size of Burrow's ring.
  SELECT l.*, instant - window_seconds * INTERVAL '1' SECOND AS window_start,
         sampled_at - (intervals - 1) * INTERVAL '10' SECOND AS ring_start,
         instant - max_time_lag_seconds * INTERVAL '1' SECOND AS late_before,
         coalesce(end_offset > committed_offset + allowed_lag, false) AS is_waiting
  FROM limited AS l
), ordered AS (
  SELECT cell, record_offset, record_timestamp, committed_offset, commit_timestamp_ms,
         row_number() OVER (PARTITION BY cell ORDER BY record_offset DESC) AS nth,
         lag(record_timestamp) OVER (PARTITION BY cell ORDER BY record_offset DESC) AS next_at,
         lead(committed_offset) OVER (PARTITION BY cell ORDER BY record_offset DESC) AS previous_offset
  FROM waiting_commits
), commits AS (
  SELECT o.cell, c.place, c.instant, c.is_waiting, o.record_offset, o.record_timestamp, o.committed_offset, o.commit_timestamp_ms, o.next_at, o.nth,
         o.nth <= c.intervals AS in_ring, CASE WHEN o.nth < c.intervals THEN o.previous_offset END AS previous_offset,
         CASE WHEN o.record_timestamp > c.window_start THEN 1 WHEN o.next_at IS NULL OR o.next_at > c.window_start THEN 0 END AS since_start,
         CASE WHEN o.record_timestamp <= c.sampled_at AND coalesce(o.next_at > c.sampled_at, true) THEN 1 END AS stood_at_look
  FROM cells AS c JOIN ordered AS o ON o.cell = c.cell AND (o.nth <= c.intervals OR o.next_at > c.window_start)
  WHERE c.is_waiting
), counted AS (
  SELECT h.log_id, h.offsets_partition, h.group_id, h.topic, h.partition, count(*) AS commits, max(h.commit_timestamp_ms) AS last_ms
  FROM offset_commits AS h
  LEFT JOIN tombstones AS d
    ON d.log_id = h.log_id AND d.offsets_partition = h.offsets_partition AND d.group_id = h.group_id AND d.topic = h.topic AND d.partition = h.partition
  WHERE h.record_offset > coalesce(d.record_offset, -1)
  GROUP BY h.log_id, h.offsets_partition, h.group_id, h.topic, h.partition
), counts AS (
  SELECT cell, count(*) AS commits, max(CASE WHEN previous_offset IS NULL THEN commit_timestamp_ms END) AS first_ms,
         max(CASE WHEN nth = 1 THEN commit_timestamp_ms END) AS last_ms
  FROM commits WHERE in_ring GROUP BY cell
  UNION ALL
  SELECT c.cell, least(n.commits, c.intervals), NULL, n.last_ms
  FROM cells AS c
  JOIN counted AS n
    ON n.log_id = c.log_id AND n.offsets_partition = c.offsets_partition AND n.group_id = c.group_id AND n.topic = c.topic AND n.partition = c.partition
  WHERE NOT c.is_waiting
), ends AS (
  SELECT e.place, i.sampled_at, i.held_until, i.known_until, i.high_watermark, i.lowest_from, i.next_sampled_at, i.next_offset, i.next_lowest
  FROM end_intervals AS i
  JOIN places AS e ON e.topic = i.topic AND e.topic_id IS NOT DISTINCT FROM i.topic_id AND e.partition = i.partition
),
-- @include judged
SELECT j.group_id, j.topic, j.partition, v.level, j.verdict, j.verdict_reason, j.cause, j.status, j.status_reason, j.current_lag,
       j.messages_lost,
       CASE WHEN j.committed_offset >= 0 THEN j.committed_offset END AS committed_offset,
       j.commits, j.complete, j.first_commit_at_ms, j.last_commit_at_ms, j.lag_before, j.sampled_at, j.offsets_partition, j.instant AS as_of, j.is_stale
FROM judged AS j JOIN verdicts AS v ON v.verdict = j.verdict
