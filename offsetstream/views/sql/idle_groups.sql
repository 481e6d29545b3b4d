-- One row per group: time since its last commit, since when it has had no members, and how many committed offsets it has.
--
--   group_id STRING: Group id
--   group_type STRING: Classic, Consumer, Share or Streams
--   group_state STRING: State of the group
--   member_count INT: Number of members
--   offsets BIGINT: Number of committed offsets
--   topics BIGINT: Number of topics with a committed offset
--   last_commit_at TIMESTAMP: Time of the last commit
--   idle_ms BIGINT: Milliseconds since the last commit; null if its time is in the future
--   empty_since TIMESTAMP: Time since which the group has no members; null if it has members, or the time is unknown
--   reason STRING: never committed, has members or no members; for a share group, that its offsets are stored elsewhere
--   offsets_partition INT: Offsets partition of the group
--   as_of TIMESTAMP: Time up to which the data is complete
--   is_stale BOOLEAN: Whether as_of is too old to describe the present
WITH folded AS (
  SELECT offsets_partition, group_id, count(*) AS offsets, count(DISTINCT topic) AS topics, max(commit_timestamp) AS last_commit_at
  FROM committed_offsets WHERE in_coordinator_partition GROUP BY offsets_partition, group_id
), left_last AS (
  SELECT log_id, offsets_partition, group_id, max(record_timestamp) AS last_left_at
  FROM member_history WHERE change = 'left' GROUP BY log_id, offsets_partition, group_id
)
SELECT g.group_id, g.group_type, g.state AS group_state, coalesce(g.member_count, 0) AS member_count, coalesce(o.offsets, 0) AS offsets,
       coalesce(o.topics, 0) AS topics, o.last_commit_at,
       CASE WHEN o.last_commit_at <= now_at THEN greatest(0, (unix_micros(least(now_at, coalesce(f.as_of, now_at))) - unix_micros(o.last_commit_at)) div 1000) END AS idle_ms,
       CASE WHEN g.member_count = 0 THEN coalesce(l.last_left_at, g.state_timestamp) END AS empty_since,
       CASE WHEN g.group_type = 'Share' THEN 'share group: its offsets are in __share_group_state'
            WHEN o.group_id IS NULL THEN 'never committed'
            WHEN g.member_count > 0 THEN 'has members' ELSE 'no members' END AS reason,
       g.offsets_partition, least(now_at, coalesce(f.as_of, now_at)) AS as_of, coalesce(f.is_stale, false) AS is_stale
FROM groups AS g CROSS JOIN clock
LEFT JOIN freshness AS f ON f.offsets_partition = g.offsets_partition
LEFT JOIN folded AS o ON o.offsets_partition = g.offsets_partition AND o.group_id = g.group_id
LEFT JOIN left_last AS l ON l.log_id = g.log_id AND l.offsets_partition = g.offsets_partition AND l.group_id = g.group_id
WHERE g.in_coordinator_partition
