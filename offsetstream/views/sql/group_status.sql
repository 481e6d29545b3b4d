-- One row per group: the worst verdict of its partitions or of the group itself, and Burrow's status for comparison. Groups without a
-- committed offset are included.
--
--   group_id STRING: Group id
--   group_type STRING: Classic, Consumer, Share or Streams; null if no record shows it
--   group_state STRING: State of the group
--   member_count INT: Number of members
--   level STRING: Severity of the verdict: OK, UNKNOWN, WARN or ERR
--   verdict STRING: The worst verdict of its partitions, or its own (unstable); the view verdicts lists all of them with their meaning
--   verdict_topic STRING: Topic of the partition that decided the verdict; null if the verdict is the group's own
--   verdict_partition INT: Partition that decided the verdict
--   verdict_reason STRING: Reason for the verdict, as text
--   cause STRING: Cause shared with the verdicts of other groups; null if none is known
--   status STRING: Burrow's status: OK, WARN, ERR or NOTFOUND (no commit for seven days). It does not affect the verdict
--   worst_status STRING: Burrow's status of the group's worst partition: OK, WARN, STOP, STALL or REWIND
--   worst_topic STRING: Topic of that partition
--   worst_partition INT: That partition
--   status_reason STRING: Reason for Burrow's status, as text
--   total_lag BIGINT: Sum of the known lags of its partitions, in messages; null if none is known
--   max_lag BIGINT: Greatest known lag of a partition, in messages; null if none is known
--   messages_lost BIGINT: Messages that the logs no longer have and that the group never read
--   partitions INT: Partitions with a committed offset
--   partitions_not_ok INT: Number of partitions at level WARN or ERR
--   complete DOUBLE: Share of the partitions that have a full window of commits
--   last_commit_at_ms BIGINT: Time of the group's last commit, in milliseconds since 1970
--   offsets_partition INT: Offsets partition of the group
--   as_of TIMESTAMP: Time up to which the data is complete: the earliest of its partitions
--   is_stale BOOLEAN: Whether some of its data is too old to describe the present
WITH ranked AS (
  SELECT p.*, CASE p.status WHEN 'OK' THEN 1 WHEN 'WARN' THEN 2 WHEN 'STOP' THEN 4 WHEN 'STALL' THEN 5 ELSE 6 END AS status_level, v.rank
  FROM group_status_partitions AS p JOIN verdicts AS v ON v.verdict = p.verdict
), placed AS (
  SELECT r.*, row_number() OVER (PARTITION BY group_id ORDER BY status_level DESC, current_lag DESC, topic NULLS FIRST, partition NULLS FIRST) AS nth,
         row_number() OVER (PARTITION BY group_id ORDER BY rank DESC, current_lag DESC, topic NULLS FIRST, partition NULLS FIRST) AS verdict_nth
  FROM ranked AS r
), folded AS (
  -- Where the end is unknown, current_lag is 0, and messages_lost is null.
  SELECT group_id, max(status_level) AS status_level, CAST(sum(CASE WHEN messages_lost IS NOT NULL THEN current_lag END) AS BIGINT) AS total_lag,
         max(CASE WHEN messages_lost IS NOT NULL THEN current_lag END) AS max_lag,
         CAST(sum(messages_lost) AS BIGINT) AS messages_lost, count(*) AS partitions,
         count(CASE WHEN level IN ('WARN', 'ERR') THEN 1 END) AS partitions_not_ok, count(CASE WHEN complete >= 1 THEN 1 END) AS complete,
         max(last_commit_at_ms) AS last_commit_at_ms, max(offsets_partition) AS offsets_partition, min(as_of) AS as_of, max(CASE WHEN is_stale THEN 1 ELSE 0 END) AS is_stale,
         max(CASE WHEN nth = 1 THEN status END) AS worst_status, max(CASE WHEN nth = 1 THEN topic END) AS worst_topic,
         max(CASE WHEN nth = 1 THEN partition END) AS worst_partition, max(CASE WHEN nth = 1 THEN status_reason END) AS status_reason,
         max(CASE WHEN verdict_nth = 1 THEN verdict END) AS verdict, max(CASE WHEN verdict_nth = 1 THEN topic END) AS verdict_topic,
         max(CASE WHEN verdict_nth = 1 THEN partition END) AS verdict_partition,
         max(CASE WHEN verdict_nth = 1 THEN verdict_reason END) AS verdict_reason,
         max(CASE WHEN verdict_nth = 1 THEN cause END) AS cause
  FROM placed GROUP BY group_id
), known AS (
  SELECT group_id FROM folded UNION SELECT group_id FROM groups WHERE in_coordinator_partition
), with_offsets AS (
  -- The groups of `folded`. Spark's analysis puts in each part as often as it is named: with `folded` here, it would read 2,500 tables.
  SELECT DISTINCT group_id FROM committed_offsets WHERE in_coordinator_partition
), bare AS (
  SELECT g.offsets_partition, g.group_id FROM groups AS g LEFT JOIN with_offsets AS c ON c.group_id = g.group_id
  WHERE g.in_coordinator_partition AND c.group_id IS NULL
), tombstones_of AS (
  SELECT h.log_id, h.offsets_partition, h.group_id, h.topic, h.partition, h.record_offset, h.record_timestamp,
         row_number() OVER (PARTITION BY h.offsets_partition, h.group_id ORDER BY h.log_id DESC, h.record_offset DESC) AS nth
  FROM bare AS b JOIN offset_commits AS h ON h.offsets_partition = b.offsets_partition AND h.group_id = b.group_id AND h.is_tombstone
), wanted AS (
  SELECT log_id, offsets_partition, group_id, topic, partition, record_offset, record_timestamp FROM tombstones_of WHERE nth = 1
),
-- @include deletions
,
-- @include named
, owned AS (
  SELECT b.offsets_partition, b.group_id, count(*) AS partitions, CAST(sum(coalesce(e.readable_end, e.high_watermark) - e.log_start_offset) AS BIGINT) AS messages
  FROM (SELECT offsets_partition, group_id FROM groups WHERE in_coordinator_partition AND group_type <> 'Share') AS b
  JOIN member_assignments AS a ON a.offsets_partition = b.offsets_partition AND a.group_id = b.group_id AND a.kind = 'assigned'
  LEFT JOIN topics AS t ON t.topic_id = a.topic_id
  LEFT JOIN committed_offsets AS c
    ON c.offsets_partition = b.offsets_partition AND c.group_id = b.group_id AND c.topic = coalesce(t.topic, a.topic) AND c.partition = a.partition
  LEFT JOIN partition_ends AS e ON e.topic = coalesce(t.topic, a.topic) AND e.partition = a.partition AND e.error IS NULL
  WHERE c.group_id IS NULL
  GROUP BY b.offsets_partition, b.group_id
), own AS (
  -- Findings about a group as such, not about one of its partitions.
  SELECT b.offsets_partition, b.group_id,
         CASE WHEN r.is_stale THEN 'unknown'
              WHEN g.group_type = 'Classic' AND g.protocol_type NOT IN ('', 'consumer') AND g.member_count > 0 THEN 'ok'
              ELSE 'unknown' END AS verdict,
         CASE WHEN r.is_stale THEN r.stale_reason
              WHEN g.group_type = 'Share' THEN 'share group: its offsets are in __share_group_state'
              WHEN g.group_type = 'Classic' AND g.protocol_type NOT IN ('', 'consumer') THEN
                'a group of the protocol ' || g.protocol_type || ', which commits no offsets here' || CASE WHEN g.member_count > 0 THEN '' ELSE '; it has no members' END
              WHEN d.reason = 'topic deleted' THEN 'its offsets were deleted with the topic ' || d.topic || ', '
                || CAST((unix_micros(least(now_at, coalesce(r.as_of, now_at))) - unix_micros(d.record_timestamp)) div 1000000 AS STRING) || ' s ago'
              WHEN d.group_id IS NOT NULL THEN 'its last offset was deleted '
                || CAST((unix_micros(least(now_at, coalesce(r.as_of, now_at))) - unix_micros(d.record_timestamp)) div 1000000 AS STRING) || ' s ago (' || d.reason || ')'
              WHEN o.group_id IS NOT NULL THEN 'it owns ' || CAST(o.partitions AS STRING) || CASE WHEN o.partitions = 1 THEN ' partition' ELSE ' partitions' END
                || ', and has not committed yet' || CASE WHEN o.messages IS NULL THEN '' ELSE '; ' || CAST(o.messages AS STRING) || CASE WHEN o.messages = 1 THEN ' message is' ELSE ' messages are' END || ' in the log' END
              ELSE 'no committed offset' END AS verdict_reason,
         CASE WHEN r.is_stale THEN r.cause
              WHEN coalesce(g.group_type, '') <> 'Share' AND d.reason = 'topic deleted' THEN 'the topic ' || d.topic || CASE WHEN n.there > 0 THEN ' was recreated' ELSE ' was deleted' END
         END AS cause
  FROM bare AS b CROSS JOIN clock
  JOIN groups AS g ON g.offsets_partition = b.offsets_partition AND g.group_id = b.group_id
  LEFT JOIN freshness AS r ON r.offsets_partition = b.offsets_partition
  LEFT JOIN deletions AS d ON d.offsets_partition = b.offsets_partition AND d.group_id = b.group_id
  LEFT JOIN named AS n ON n.topic = d.topic
  LEFT JOIN owned AS o ON o.offsets_partition = b.offsets_partition AND o.group_id = b.group_id
  UNION ALL
  -- A group may have committed some partitions only: in the others it may still be at the first message.
  SELECT o.offsets_partition, o.group_id, 'unknown', 'it has never committed ' || CAST(o.partitions AS STRING) || CASE WHEN o.partitions = 1 THEN ' partition' ELSE ' partitions' END
           || ' that it owns, with ' || CAST(o.messages AS STRING) || CASE WHEN o.messages = 1 THEN ' message' ELSE ' messages' END, NULL
  FROM owned AS o
  LEFT JOIN bare AS b ON b.offsets_partition = o.offsets_partition AND b.group_id = o.group_id
  WHERE b.group_id IS NULL AND o.messages > 0
  UNION ALL
  SELECT u.offsets_partition, u.group_id, 'unstable', CAST(u.rebalances AS STRING) || ' rebalances in five minutes; the client ' || u.client_id || ' left '
           || CAST(u.leaves AS STRING) || ' times', NULL
  FROM unstable_groups AS u
  JOIN groups AS g ON g.offsets_partition = u.offsets_partition AND g.group_id = u.group_id AND g.in_coordinator_partition
), candidates AS (
  SELECT group_id, verdict, verdict_reason, cause, verdict_topic, verdict_partition, 0 AS is_own FROM folded
  UNION ALL
  SELECT group_id, verdict, verdict_reason, cause, NULL, NULL, 1 FROM own
), worst AS (
  SELECT c.*, v.level, row_number() OVER (PARTITION BY c.group_id ORDER BY v.rank DESC, c.is_own NULLS FIRST) AS nth
  FROM candidates AS c JOIN verdicts AS v ON v.verdict = c.verdict
)
SELECT k.group_id, g.group_type, g.state AS group_state, coalesce(g.member_count, 0) AS member_count,
       w.level, w.verdict, w.verdict_topic, w.verdict_partition, w.verdict_reason, w.cause,
       CASE WHEN f.group_id IS NULL OR f.last_commit_at_ms < unix_micros(now_at) div 1000000 * 1000 - 604800000 THEN 'NOTFOUND'
            WHEN f.status_level > 2 THEN 'ERR' WHEN f.status_level = 2 THEN 'WARN' ELSE 'OK' END AS status,
       f.worst_status, f.worst_topic, f.worst_partition, coalesce(f.status_reason, 'no committed offset') AS status_reason,
       f.total_lag, f.max_lag, f.messages_lost, CAST(coalesce(f.partitions, 0) AS INT) AS partitions, CAST(coalesce(f.partitions_not_ok, 0) AS INT) AS partitions_not_ok,
       CAST(f.complete AS DOUBLE) / nullif(CAST(f.partitions AS DOUBLE), 0) AS complete, f.last_commit_at_ms,
       coalesce(f.offsets_partition, g.offsets_partition) AS offsets_partition, coalesce(f.as_of, least(now_at, r.as_of)) AS as_of, coalesce(f.is_stale = 1, r.is_stale, false) AS is_stale
FROM known AS k CROSS JOIN clock
LEFT JOIN folded AS f ON f.group_id = k.group_id
LEFT JOIN groups AS g ON g.group_id = k.group_id AND g.in_coordinator_partition
LEFT JOIN freshness AS r ON r.offsets_partition = g.offsets_partition
JOIN worst AS w ON w.group_id = k.group_id AND w.nth = 1
