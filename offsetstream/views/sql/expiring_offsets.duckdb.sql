-- Reads: clock, cluster, committed_offsets, freshness, groups, member_subscriptions
WITH subscribed AS (
  SELECT DISTINCT
    offsets_partition,
    group_id,
    topic
  FROM member_subscriptions
), told AS (
  SELECT
    offsets_partition,
    group_id,
    COUNT(*) AS topics
  FROM subscribed
  GROUP BY
    offsets_partition,
    group_id
), settings AS (
  SELECT
    MAX(offsets_retention_ms) AS offsets_retention_ms
  FROM cluster
), based AS (
  SELECT
    c.offsets_partition,
    c.group_id,
    c.topic,
    c.partition,
    c.committed_offset,
    c.commit_timestamp,
    c.commit_timestamp_ms,
    c.expire_timestamp_ms,
    g.group_type,
    g.state,
    k.offsets_retention_ms,
    now_at,
    LEAST(now_at, COALESCE(f.as_of, now_at)) AS as_of,
    COALESCE(f.is_stale, FALSE) AS is_stale,
    CASE
      WHEN g.group_id IS NULL
      THEN 'kept: the coordinator has no such group'
      WHEN NOT s.topic IS NULL AND g.group_type IN ('Consumer', 'Streams')
      THEN 'kept: a member subscribes to the topic'
      WHEN g.group_type IN ('Consumer', 'Streams')
      THEN NULL
      WHEN COALESCE(g.protocol_type, '') = ''
      THEN NULL
      WHEN g.state = 'Empty'
      THEN NULL
      WHEN g.protocol_type <> 'consumer'
      THEN 'kept: the group has members, of the protocol ' || g.protocol_type
      WHEN COALESCE(o.topics, 0) = 0
      THEN 'kept: the subscriptions of its members are unknown'
      WHEN NOT s.topic IS NULL
      THEN 'kept: a member subscribes to the topic'
    END AS kept_because,
    COALESCE(
      g.group_type = 'Classic'
      AND COALESCE(g.protocol_type, '') <> ''
      AND g.state = 'Empty'
      AND NOT g.state_timestamp IS NULL,
      FALSE
    ) AS is_since_empty,
    EPOCH_US(g.state_timestamp) // 1000 AS state_ms
  FROM committed_offsets AS c
  CROSS JOIN clock
  CROSS JOIN settings AS k
  LEFT JOIN freshness AS f
    ON f.offsets_partition = c.offsets_partition
  LEFT JOIN groups AS g
    ON g.offsets_partition = c.offsets_partition AND g.group_id = c.group_id
  LEFT JOIN subscribed AS s
    ON s.offsets_partition = c.offsets_partition
    AND s.group_id = c.group_id
    AND s.topic = c.topic
  LEFT JOIN told AS o
    ON o.offsets_partition = c.offsets_partition AND o.group_id = c.group_id
  WHERE
    c.in_coordinator_partition
), dated AS (
  SELECT
    b.*,
    CASE
      WHEN kept_because IS NULL
      THEN COALESCE(
        expire_timestamp_ms,
        CASE WHEN is_since_empty THEN state_ms ELSE commit_timestamp_ms END + offsets_retention_ms
      )
    END AS expires_at_ms
  FROM based AS b
)
SELECT
  offsets_partition,
  group_id,
  topic,
  partition,
  committed_offset,
  commit_timestamp,
  group_type,
  state AS group_state,
  kept_because,
  expires_at_ms,
  expires_at_ms - EPOCH_US(now_at) // 1000 AS expires_in_ms,
  CASE
    WHEN NOT kept_because IS NULL
    THEN NULL
    WHEN NOT expire_timestamp_ms IS NULL
    THEN 'as its client requested'
    WHEN offsets_retention_ms IS NULL
    THEN 'unknown retention'
    WHEN is_since_empty
    THEN 'since the group became empty'
    WHEN state = 'Empty'
    THEN 'since the commit'
    ELSE 'since the commit: nobody subscribes to the topic'
  END AS counted_from,
  as_of,
  is_stale
FROM dated
