-- One row per partition that a group has committed or is assigned: how many messages wait there. The lag is never negative. If it is
-- unknown, it is null and reason says why. Messages that retention has deleted do not wait: they count as lost. Kafka's own tool adds both
-- into one number. Topics are matched by name, as in Kafka's own tool. Offsets of share groups are in another topic (__share_group_state).
--
--   group_id STRING: Group id
--   topic STRING: Topic
--   partition INT: Partition of the topic
--   committed_offset BIGINT: Committed offset; null if there is none or it is negative
--   log_end_offset BIGINT: End offset of the log for read_uncommitted, at the last sample
--   lag BIGINT: Messages from the committed offset, or the start of the log if that is later, to the end. If only transaction markers and records of aborted transactions are known to be left, they do not count
--   lag_read_committed BIGINT: The same up to the last stable offset
--   messages_lost BIGINT: Messages that were deleted from the log before the group read them
--   retention_used DOUBLE: Share of the log that the group has not read: at 1 the group loses messages
--   is_truncated BOOLEAN: Whether the log starts after the committed offset
--   is_recreated BOOLEAN: Whether the offset belongs to an earlier topic of this name, according to the topic id
--   is_beyond_end BOOLEAN: Whether the offset is beyond the end that was sampled at least a minute after the commit
--   reason STRING: Why the lag is unknown
--   commit_timestamp TIMESTAMP: Time of the commit
--   sampled_at TIMESTAMP: Time at which the end offset was sampled
--   member_id STRING: Member that is assigned the partition
--   client_id STRING: Client id of that member
--   client_host STRING: Host of that member
--   group_state STRING: State of the group
--   offsets_partition INT: Offsets partition of the group
--   as_of TIMESTAMP: Time up to which the data is complete: the earlier of the last check of the group's offsets partition and the last sample of the end offset
--   is_stale BOOLEAN: Whether as_of is too old to describe the present
WITH assigned AS (
  SELECT a.offsets_partition, a.group_id, coalesce(t.topic, a.topic) AS topic, a.partition, min(a.member_id) AS member_id
  FROM member_assignments AS a LEFT JOIN topics AS t ON t.topic_id = a.topic_id
  WHERE a.in_coordinator_partition AND a.kind = 'assigned' AND coalesce(t.topic, a.topic) IS NOT NULL
  GROUP BY a.offsets_partition, a.group_id, coalesce(t.topic, a.topic), a.partition
), places AS (
  SELECT offsets_partition, group_id, topic, partition FROM committed_offsets WHERE in_coordinator_partition
  UNION
  SELECT offsets_partition, group_id, topic, partition FROM assigned
),
-- @include named
, told AS (
  SELECT p.offsets_partition, p.group_id, p.topic, p.partition, CASE WHEN c.committed_offset >= 0 THEN c.committed_offset END AS committed_offset, c.commit_timestamp, c.record_timestamp, c.topic_id, g.group_type, g.state,
         o.member_id, m.client_id, m.client_host, e.topic_id AS present_id, e.sampled_at,
         least(now_at, coalesce(y.as_of, now_at), coalesce(e.sampled_at, now_at)) AS as_of,
         y.stale_reason IS NOT NULL OR e.stale_reason IS NOT NULL AS is_stale,
         CASE WHEN e.error IS NULL THEN e.high_watermark END AS log_end_offset,
         CASE WHEN e.error IS NULL THEN coalesce(e.readable_end, e.high_watermark) END AS readable_end,
         CASE WHEN e.error IS NULL THEN e.last_stable_offset END AS last_stable_offset,
         CASE WHEN e.error IS NULL THEN e.log_start_offset END AS log_start_offset,
         CASE
           WHEN g.group_type = 'Share' THEN 'share group: its offsets are in __share_group_state'
           WHEN c.group_id IS NULL THEN
             'no offset: '
             || coalesce(r.reason, CASE WHEN f.filters IS NULL THEN 'never committed' ELSE 'never committed, or skipped by the filters' END)

           WHEN c.committed_offset < 0 THEN 'no offset: ' || CAST(c.committed_offset AS STRING) || ' was committed'
           WHEN n.there = 0 THEN 'no end: the topic was deleted'
           WHEN c.topic_id <> e.topic_id AND c.record_timestamp > e.sampled_at THEN 'no end: the topic was recreated after the last sample'
           WHEN e.topic IS NULL THEN 'no end: not sampled'
           WHEN e.error IS NOT NULL THEN 'no end: ' || e.error
           WHEN e.high_watermark IS NULL THEN 'no end: not sampled'
         END AS reason
  FROM places AS p CROSS JOIN clock
  LEFT JOIN freshness AS y ON y.offsets_partition = p.offsets_partition
  LEFT JOIN committed_offsets AS c
    ON c.offsets_partition = p.offsets_partition AND c.group_id = p.group_id AND c.topic = p.topic AND c.partition = p.partition
  LEFT JOIN partition_ends AS e ON e.topic = p.topic AND e.partition = p.partition
  LEFT JOIN named AS n ON n.topic = p.topic
  LEFT JOIN offsets_partitions AS f ON f.offsets_partition = p.offsets_partition
  LEFT JOIN groups AS g ON g.offsets_partition = p.offsets_partition AND g.group_id = p.group_id
  LEFT JOIN assigned AS o
    ON o.offsets_partition = p.offsets_partition AND o.group_id = p.group_id AND o.topic = p.topic AND o.partition = p.partition
  LEFT JOIN group_members AS m ON m.offsets_partition = o.offsets_partition AND m.group_id = o.group_id AND m.member_id = o.member_id
  LEFT JOIN last_deletions AS r
    ON r.offsets_partition = p.offsets_partition AND r.group_id = p.group_id AND r.topic = p.topic AND r.partition = p.partition
)
SELECT group_id, topic, partition, committed_offset, log_end_offset,
       CASE WHEN reason IS NULL THEN greatest(0, readable_end - greatest(committed_offset, log_start_offset)) END AS lag,
       CASE WHEN reason IS NULL AND last_stable_offset IS NOT NULL
            THEN greatest(0, least(last_stable_offset, readable_end) - greatest(committed_offset, log_start_offset)) END AS lag_read_committed,
       CASE WHEN reason IS NULL AND log_start_offset IS NOT NULL THEN greatest(0, log_start_offset - committed_offset) END AS messages_lost,
       CASE WHEN reason IS NULL
            THEN CAST(greatest(0, readable_end - committed_offset) AS DOUBLE)
                 / CAST(nullif(log_end_offset - log_start_offset, 0) AS DOUBLE) END AS retention_used,
       coalesce(reason IS NULL AND committed_offset < log_start_offset, false) AS is_truncated,
       coalesce(topic_id <> present_id AND NOT coalesce(record_timestamp > sampled_at, false), false) AS is_recreated,
       coalesce(reason IS NULL AND committed_offset > log_end_offset AND record_timestamp < sampled_at - INTERVAL '1' MINUTE, false) AS is_beyond_end,
       reason, commit_timestamp, sampled_at, member_id, client_id, client_host, state AS group_state, offsets_partition, as_of, is_stale
FROM told
