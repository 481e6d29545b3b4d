-- One row per committed offset: when the broker will delete it, or why it will not. Brokers check every
-- offsets.retention.check.interval.ms.
--
--   offsets_partition INT: Offsets partition of the group
--   group_id STRING: Group id
--   topic STRING: Topic
--   partition INT: Partition of the topic
--   committed_offset BIGINT: Committed offset
--   commit_timestamp TIMESTAMP: Time of the commit
--   group_type STRING: Type of the group
--   group_state STRING: State of the group
--   kept_because STRING: Why it does not expire at present
--   expires_at_ms BIGINT: Time at which it expires, in milliseconds since 1970; null if it does not expire, or the retention is unknown
--   expires_in_ms BIGINT: Milliseconds until it expires
--   counted_from STRING: Event from which the retention time counts
--   as_of TIMESTAMP: Time up to which the data is complete
--   is_stale BOOLEAN: Whether as_of is too old to describe the present
WITH subscribed AS (
  SELECT DISTINCT offsets_partition, group_id, topic FROM member_subscriptions
), told AS (
  SELECT offsets_partition, group_id, count(*) AS topics FROM subscribed GROUP BY offsets_partition, group_id
), settings AS (
  SELECT max(offsets_retention_ms) AS offsets_retention_ms FROM cluster
), based AS (
  SELECT c.offsets_partition, c.group_id, c.topic, c.partition, c.committed_offset, c.commit_timestamp, c.commit_timestamp_ms,
         c.expire_timestamp_ms, g.group_type, g.state, k.offsets_retention_ms, now_at, least(now_at, coalesce(f.as_of, now_at)) AS as_of,
         coalesce(f.is_stale, false) AS is_stale,
         CASE
           WHEN g.group_id IS NULL THEN 'kept: the coordinator has no such group'
           WHEN s.topic IS NOT NULL AND g.group_type IN ('Consumer', 'Streams') THEN 'kept: a member subscribes to the topic'
           WHEN g.group_type IN ('Consumer', 'Streams') THEN NULL
           WHEN coalesce(g.protocol_type, '') = '' THEN NULL
           WHEN g.state = 'Empty' THEN NULL
           WHEN g.protocol_type <> 'consumer' THEN 'kept: the group has members, of the protocol ' || g.protocol_type
           WHEN coalesce(o.topics, 0) = 0 THEN 'kept: the subscriptions of its members are unknown'
           WHEN s.topic IS NOT NULL THEN 'kept: a member subscribes to the topic'
         END AS kept_because,
         coalesce(g.group_type = 'Classic' AND coalesce(g.protocol_type, '') <> '' AND g.state = 'Empty' AND g.state_timestamp IS NOT NULL, false)
           AS is_since_empty,
         unix_micros(g.state_timestamp) div 1000 AS state_ms
  FROM committed_offsets AS c CROSS JOIN clock CROSS JOIN settings AS k
  LEFT JOIN freshness AS f ON f.offsets_partition = c.offsets_partition
  LEFT JOIN groups AS g ON g.offsets_partition = c.offsets_partition AND g.group_id = c.group_id
  LEFT JOIN subscribed AS s ON s.offsets_partition = c.offsets_partition AND s.group_id = c.group_id AND s.topic = c.topic
  LEFT JOIN told AS o ON o.offsets_partition = c.offsets_partition AND o.group_id = c.group_id
  WHERE c.in_coordinator_partition
), dated AS (
  SELECT b.*, CASE WHEN kept_because IS NULL THEN
           coalesce(expire_timestamp_ms, CASE WHEN is_since_empty THEN state_ms ELSE commit_timestamp_ms END + offsets_retention_ms) END AS expires_at_ms
  FROM based AS b
)
SELECT offsets_partition, group_id, topic, partition, committed_offset, commit_timestamp, group_type, state AS group_state, kept_because,
       expires_at_ms, expires_at_ms - unix_micros(now_at) div 1000 AS expires_in_ms,
       CASE WHEN kept_because IS NOT NULL THEN NULL
            WHEN expire_timestamp_ms IS NOT NULL THEN 'as its client requested'
            WHEN offsets_retention_ms IS NULL THEN 'unknown retention'
            WHEN is_since_empty THEN 'since the group became empty'
            WHEN state = 'Empty' THEN 'since the commit'
            ELSE 'since the commit: nobody subscribes to the topic' END AS counted_from,
       as_of, is_stale
FROM dated
