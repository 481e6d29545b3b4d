-- Reads: clock, cluster, committed_offsets, decoded_logs, freshness, group_history, group_records, group_status_partitions, groups, member_assignments, member_history, offset_commits, partition_ends, topics, unstable_groups, verdicts
WITH ranked AS (
  SELECT
    p.*,
    CASE p.status
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
    v.rank
  FROM group_status_partitions AS p
  JOIN verdicts AS v
    ON v.verdict = p.verdict
), placed AS (
  SELECT
    r.*,
    ROW_NUMBER() OVER (
      PARTITION BY group_id
      ORDER BY status_level DESC, current_lag DESC, topic NULLS FIRST, partition NULLS FIRST
    ) AS nth,
    ROW_NUMBER() OVER (
      PARTITION BY group_id
      ORDER BY rank DESC, current_lag DESC, topic NULLS FIRST, partition NULLS FIRST
    ) AS verdict_nth
  FROM ranked AS r
), folded AS (
  /* Where the end is unknown, current_lag is 0, and messages_lost is null. */
  SELECT
    group_id,
    MAX(status_level) AS status_level,
    TRY_CAST(SUM(CASE WHEN NOT messages_lost IS NULL THEN current_lag END) AS BIGINT) AS total_lag,
    MAX(CASE WHEN NOT messages_lost IS NULL THEN current_lag END) AS max_lag,
    TRY_CAST(SUM(messages_lost) AS BIGINT) AS messages_lost,
    COUNT(*) AS partitions,
    COUNT(CASE WHEN level IN ('WARN', 'ERR') THEN 1 END) AS partitions_not_ok,
    COUNT(CASE WHEN complete >= 1 THEN 1 END) AS complete,
    MAX(last_commit_at_ms) AS last_commit_at_ms,
    MAX(offsets_partition) AS offsets_partition,
    MIN(as_of) AS as_of,
    MAX(CASE WHEN is_stale THEN 1 ELSE 0 END) AS is_stale,
    MAX(CASE WHEN nth = 1 THEN status END) AS worst_status,
    MAX(CASE WHEN nth = 1 THEN topic END) AS worst_topic,
    MAX(CASE WHEN nth = 1 THEN partition END) AS worst_partition,
    MAX(CASE WHEN nth = 1 THEN status_reason END) AS status_reason,
    MAX(CASE WHEN verdict_nth = 1 THEN verdict END) AS verdict,
    MAX(CASE WHEN verdict_nth = 1 THEN topic END) AS verdict_topic,
    MAX(CASE WHEN verdict_nth = 1 THEN partition END) AS verdict_partition,
    MAX(CASE WHEN verdict_nth = 1 THEN verdict_reason END) AS verdict_reason,
    MAX(CASE WHEN verdict_nth = 1 THEN cause END) AS cause
  FROM placed
  GROUP BY
    group_id
), known AS (
  SELECT
    group_id
  FROM folded
  UNION
  SELECT
    group_id
  FROM groups
  WHERE
    in_coordinator_partition
), with_offsets AS (
  /* The groups of `folded`. Spark's analysis puts in each part as often as it is named: with `folded` here, it would read 2,500 tables. */
  SELECT DISTINCT
    group_id
  FROM committed_offsets
  WHERE
    in_coordinator_partition
), bare AS (
  SELECT
    g.offsets_partition,
    g.group_id
  FROM groups AS g
  LEFT JOIN with_offsets AS c
    ON c.group_id = g.group_id
  WHERE
    g.in_coordinator_partition AND c.group_id IS NULL
), tombstones_of AS (
  SELECT
    h.log_id,
    h.offsets_partition,
    h.group_id,
    h.topic,
    h.partition,
    h.record_offset,
    h.record_timestamp,
    ROW_NUMBER() OVER (
      PARTITION BY h.offsets_partition, h.group_id
      ORDER BY h.log_id DESC, h.record_offset DESC
    ) AS nth
  FROM bare AS b
  JOIN offset_commits AS h
    ON h.offsets_partition = b.offsets_partition
    AND h.group_id = b.group_id
    AND h.is_tombstone
), wanted AS (
  SELECT
    log_id,
    offsets_partition,
    group_id,
    topic,
    partition,
    record_offset,
    record_timestamp
  FROM tombstones_of
  WHERE
    nth = 1
), before AS (
  SELECT
    w.log_id,
    w.offsets_partition,
    w.record_offset,
    c.committed_offset,
    c.commit_timestamp_ms,
    c.expire_timestamp_ms,
    c.topic_id,
    c.is_tombstone,
    ROW_NUMBER() OVER (
      PARTITION BY w.log_id, w.offsets_partition, w.record_offset
      ORDER BY c.record_offset DESC
    ) AS nth
  FROM wanted AS w
  JOIN offset_commits AS c
    ON c.log_id = w.log_id
    AND c.offsets_partition = w.offsets_partition
    AND c.group_id = w.group_id
    AND c.topic = w.topic
    AND c.partition = w.partition
    AND c.record_offset < w.record_offset
), dead AS (
  SELECT
    w.log_id,
    w.offsets_partition,
    w.group_id,
    w.topic,
    w.partition,
    w.record_offset,
    w.record_timestamp,
    EPOCH_US(w.record_timestamp) // 1000 AS record_ms,
    b.committed_offset,
    b.commit_timestamp_ms,
    b.expire_timestamp_ms,
    b.topic_id
  FROM wanted AS w
  LEFT JOIN before AS b
    ON b.log_id = w.log_id
    AND b.offsets_partition = w.offsets_partition
    AND b.record_offset = w.record_offset
    AND b.nth = 1
    AND NOT b.is_tombstone
), removed AS (
  /* The group's own tombstone is in the same append. */
  SELECT
    d.log_id,
    d.offsets_partition,
    d.record_offset,
    MIN(g.record_offset) AS group_offset
  FROM dead AS d
  JOIN group_records AS g
    ON g.log_id = d.log_id
    AND g.offsets_partition = d.offsets_partition
    AND g.group_id = d.group_id
    AND g.is_tombstone
    AND g.key_type IN (2, 3, 17)
    AND g.record_timestamp = d.record_timestamp
    AND g.record_offset > d.record_offset
  GROUP BY
    d.log_id,
    d.offsets_partition,
    d.record_offset
), states AS (
  SELECT
    d.log_id,
    d.offsets_partition,
    d.record_offset,
    h.group_type,
    h.state,
    h.protocol_type,
    h.state_timestamp,
    h.is_removed,
    ROW_NUMBER() OVER (
      PARTITION BY d.log_id, d.offsets_partition, d.record_offset
      ORDER BY h.record_offset DESC
    ) AS nth
  FROM dead AS d
  JOIN group_history AS h
    ON h.log_id = d.log_id
    AND h.offsets_partition = d.offsets_partition
    AND h.group_id = d.group_id
    AND h.record_offset < d.record_offset
), memberships AS (
  SELECT
    log_id,
    offsets_partition,
    group_id,
    member_id,
    record_offset,
    change,
    subscribed_topics,
    LEAD(record_offset) OVER (
      PARTITION BY log_id, offsets_partition, group_id, member_id
      ORDER BY record_offset NULLS FIRST
    ) AS next_offset
  FROM member_history
), subscribed AS (
  SELECT
    d.log_id,
    d.offsets_partition,
    d.record_offset,
    COUNT(*) AS subscribers
  FROM dead AS d
  JOIN memberships AS m
    ON m.log_id = d.log_id
    AND m.offsets_partition = d.offsets_partition
    AND m.group_id = d.group_id
    AND m.record_offset < d.record_offset
    AND (
      m.next_offset IS NULL OR m.next_offset > d.record_offset
    )
    AND m.change <> 'left'
    AND CONTAINS(',' || COALESCE(m.subscribed_topics, d.topic) || ',', ',' || d.topic || ',')
  GROUP BY
    d.log_id,
    d.offsets_partition,
    d.record_offset
), lost AS (
  SELECT
    d.log_id,
    d.offsets_partition,
    d.record_offset,
    MAX(t.deleted_at) AS deleted_at
  FROM dead AS d
  JOIN topics AS t
    ON t.topic = d.topic
    AND (
      d.topic_id IS NULL OR d.topic_id = t.topic_id
    )
    AND NOT t.deleted_at IS NULL
    AND d.record_timestamp >= t.last_seen_at - INTERVAL '1' MINUTE
    AND d.record_timestamp <= t.deleted_at + INTERVAL '10' MINUTE
  GROUP BY
    d.log_id,
    d.offsets_partition,
    d.record_offset
), settings AS (
  SELECT
    MAX(offsets_retention_ms) AS offsets_retention_ms
  FROM cluster
), due AS (
  SELECT
    d.*,
    g.group_offset,
    s.state,
    s.group_type,
    s.is_removed,
    t.deleted_at,
    k.offsets_retention_ms,
    u.decoded_from_offset,
    COALESCE(m.subscribers, 0) AS subscribers,
    CASE
      WHEN COALESCE(m.subscribers, 0) > 0
      THEN NULL
      WHEN NOT d.expire_timestamp_ms IS NULL
      THEN d.expire_timestamp_ms
      WHEN s.group_type = 'Classic'
      AND COALESCE(s.protocol_type, '') <> ''
      AND s.state = 'Empty'
      AND NOT s.state_timestamp IS NULL
      THEN EPOCH_US(s.state_timestamp) // 1000 + k.offsets_retention_ms
      ELSE d.commit_timestamp_ms + k.offsets_retention_ms
    END AS due_ms
  FROM dead AS d
  CROSS JOIN settings AS k
  LEFT JOIN removed AS g
    ON g.log_id = d.log_id
    AND g.offsets_partition = d.offsets_partition
    AND g.record_offset = d.record_offset
  LEFT JOIN states AS s
    ON s.log_id = d.log_id
    AND s.offsets_partition = d.offsets_partition
    AND s.record_offset = d.record_offset
    AND s.nth = 1
  LEFT JOIN subscribed AS m
    ON m.log_id = d.log_id
    AND m.offsets_partition = d.offsets_partition
    AND m.record_offset = d.record_offset
  LEFT JOIN lost AS t
    ON t.log_id = d.log_id
    AND t.offsets_partition = d.offsets_partition
    AND t.record_offset = d.record_offset
  LEFT JOIN decoded_logs AS u
    ON u.log_id = d.log_id AND u.offsets_partition = d.offsets_partition
), deletions AS (
  SELECT
    log_id,
    offsets_partition,
    group_id,
    topic,
    partition,
    record_offset,
    record_timestamp,
    committed_offset,
    CASE
      WHEN commit_timestamp_ms IS NULL
      THEN 'unknown: the history has no commit before it'
      WHEN decoded_from_offset IS NULL OR decoded_from_offset > record_offset
      THEN 'unknown: the history is not decoded'
      WHEN record_ms >= due_ms
      THEN 'expired'
      WHEN NOT group_offset IS NULL
      THEN 'group deleted'
      WHEN NOT deleted_at IS NULL
      THEN 'topic deleted'
      WHEN offsets_retention_ms IS NULL AND subscribers = 0
      THEN 'expired or deleted: unknown retention'
      ELSE 'offsets deleted'
    END AS reason,
    record_ms - due_ms AS ms_past_due,
    CASE WHEN is_removed THEN 'Gone' ELSE COALESCE(state, 'no members ever') END AS group_state,
    group_type
  FROM due
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
), owned AS (
  SELECT
    b.offsets_partition,
    b.group_id,
    COUNT(*) AS partitions,
    TRY_CAST(SUM(COALESCE(e.readable_end, e.high_watermark) - e.log_start_offset) AS BIGINT) AS messages
  FROM (
    SELECT
      offsets_partition,
      group_id
    FROM groups
    WHERE
      in_coordinator_partition AND group_type <> 'Share'
  ) AS b
  JOIN member_assignments AS a
    ON a.offsets_partition = b.offsets_partition
    AND a.group_id = b.group_id
    AND a.kind = 'assigned'
  LEFT JOIN topics AS t
    ON t.topic_id = a.topic_id
  LEFT JOIN committed_offsets AS c
    ON c.offsets_partition = b.offsets_partition
    AND c.group_id = b.group_id
    AND c.topic = COALESCE(t.topic, a.topic)
    AND c.partition = a.partition
  LEFT JOIN partition_ends AS e
    ON e.topic = COALESCE(t.topic, a.topic)
    AND e.partition = a.partition
    AND e.error IS NULL
  WHERE
    c.group_id IS NULL
  GROUP BY
    b.offsets_partition,
    b.group_id
), own AS (
  /* Findings about a group as such, not about one of its partitions. */
  SELECT
    b.offsets_partition,
    b.group_id,
    CASE
      WHEN r.is_stale
      THEN 'unknown'
      WHEN g.group_type = 'Classic'
      AND NOT g.protocol_type IN ('', 'consumer')
      AND g.member_count > 0
      THEN 'ok'
      ELSE 'unknown'
    END AS verdict,
    CASE
      WHEN r.is_stale
      THEN r.stale_reason
      WHEN g.group_type = 'Share'
      THEN 'share group: its offsets are in __share_group_state'
      WHEN g.group_type = 'Classic' AND NOT g.protocol_type IN ('', 'consumer')
      THEN 'a group of the protocol ' || g.protocol_type || ', which commits no offsets here' || CASE WHEN g.member_count > 0 THEN '' ELSE '; it has no members' END
      WHEN d.reason = 'topic deleted'
      THEN 'its offsets were deleted with the topic ' || d.topic || ', ' || TRY_CAST((
        EPOCH_US(LEAST(now_at, COALESCE(r.as_of, now_at))) - EPOCH_US(d.record_timestamp)
      ) // 1000000 AS TEXT) || ' s ago'
      WHEN NOT d.group_id IS NULL
      THEN 'its last offset was deleted ' || TRY_CAST((
        EPOCH_US(LEAST(now_at, COALESCE(r.as_of, now_at))) - EPOCH_US(d.record_timestamp)
      ) // 1000000 AS TEXT) || ' s ago (' || d.reason || ')'
      WHEN NOT o.group_id IS NULL
      THEN 'it owns ' || TRY_CAST(o.partitions AS TEXT) || CASE WHEN o.partitions = 1 THEN ' partition' ELSE ' partitions' END || ', and has not committed yet' || CASE
        WHEN o.messages IS NULL
        THEN ''
        ELSE '; ' || TRY_CAST(o.messages AS TEXT) || CASE WHEN o.messages = 1 THEN ' message is' ELSE ' messages are' END || ' in the log'
      END
      ELSE 'no committed offset'
    END AS verdict_reason,
    CASE
      WHEN r.is_stale
      THEN r.cause
      WHEN COALESCE(g.group_type, '') <> 'Share' AND d.reason = 'topic deleted'
      THEN 'the topic ' || d.topic || CASE WHEN n.there > 0 THEN ' was recreated' ELSE ' was deleted' END
    END AS cause
  FROM bare AS b
  CROSS JOIN clock
  JOIN groups AS g
    ON g.offsets_partition = b.offsets_partition AND g.group_id = b.group_id
  LEFT JOIN freshness AS r
    ON r.offsets_partition = b.offsets_partition
  LEFT JOIN deletions AS d
    ON d.offsets_partition = b.offsets_partition AND d.group_id = b.group_id
  LEFT JOIN named AS n
    ON n.topic = d.topic
  LEFT JOIN owned AS o
    ON o.offsets_partition = b.offsets_partition AND o.group_id = b.group_id
  UNION ALL
  /* A group may have committed some partitions only: in the others it may still be at the first message. */
  SELECT
    o.offsets_partition,
    o.group_id,
    'unknown',
    'it has never committed ' || TRY_CAST(o.partitions AS TEXT) || CASE WHEN o.partitions = 1 THEN ' partition' ELSE ' partitions' END || ' that it owns, with ' || TRY_CAST(o.messages AS TEXT) || CASE WHEN o.messages = 1 THEN ' message' ELSE ' messages' END,
    NULL
  FROM owned AS o
  LEFT JOIN bare AS b
    ON b.offsets_partition = o.offsets_partition AND b.group_id = o.group_id
  WHERE
    b.group_id IS NULL AND o.messages > 0
  UNION ALL
  SELECT
    u.offsets_partition,
    u.group_id,
    'unstable',
    TRY_CAST(u.rebalances AS TEXT) || ' rebalances in five minutes; the client ' || u.client_id || ' left ' || TRY_CAST(u.leaves AS TEXT) || ' times',
    NULL
  FROM unstable_groups AS u
  JOIN groups AS g
    ON g.offsets_partition = u.offsets_partition
    AND g.group_id = u.group_id
    AND g.in_coordinator_partition
), candidates AS (
  SELECT
    group_id,
    verdict,
    verdict_reason,
    cause,
    verdict_topic,
    verdict_partition,
    0 AS is_own
  FROM folded
  UNION ALL
  SELECT
    group_id,
    verdict,
    verdict_reason,
    cause,
    NULL,
    NULL,
    1
  FROM own
), worst AS (
  SELECT
    c.*,
    v.level,
    ROW_NUMBER() OVER (PARTITION BY c.group_id ORDER BY v.rank DESC, c.is_own NULLS FIRST) AS nth
  FROM candidates AS c
  JOIN verdicts AS v
    ON v.verdict = c.verdict
)
SELECT
  k.group_id,
  g.group_type,
  g.state AS group_state,
  COALESCE(g.member_count, 0) AS member_count,
  w.level,
  w.verdict,
  w.verdict_topic,
  w.verdict_partition,
  w.verdict_reason,
  w.cause,
  CASE
    WHEN f.group_id IS NULL
    OR f.last_commit_at_ms < EPOCH_US(now_at) // 1000000 * 1000 - 604800000
    THEN 'NOTFOUND'
    WHEN f.status_level > 2
    THEN 'ERR'
    WHEN f.status_level = 2
    THEN 'WARN'
    ELSE 'OK'
  END AS status,
  f.worst_status,
  f.worst_topic,
  f.worst_partition,
  COALESCE(f.status_reason, 'no committed offset') AS status_reason,
  f.total_lag,
  f.max_lag,
  f.messages_lost,
  TRY_CAST(COALESCE(f.partitions, 0) AS INT) AS partitions,
  TRY_CAST(COALESCE(f.partitions_not_ok, 0) AS INT) AS partitions_not_ok,
  TRY_CAST(f.complete AS DOUBLE) / NULLIF(TRY_CAST(f.partitions AS DOUBLE), 0) AS complete,
  f.last_commit_at_ms,
  COALESCE(f.offsets_partition, g.offsets_partition) AS offsets_partition,
  COALESCE(f.as_of, LEAST(now_at, r.as_of)) AS as_of,
  COALESCE(f.is_stale = 1, r.is_stale, FALSE) AS is_stale
FROM known AS k
CROSS JOIN clock
LEFT JOIN folded AS f
  ON f.group_id = k.group_id
LEFT JOIN groups AS g
  ON g.group_id = k.group_id AND g.in_coordinator_partition
LEFT JOIN freshness AS r
  ON r.offsets_partition = g.offsets_partition
JOIN worst AS w
  ON w.group_id = k.group_id AND w.nth = 1
