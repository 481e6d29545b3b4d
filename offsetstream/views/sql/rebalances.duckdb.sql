-- Reads: assignment_history, group_history, member_history, offset_commits
WITH told AS (
  SELECT
    h.log_id,
    h.offsets_partition,
    h.group_id,
    h.group_type,
    h.state,
    h.protocol,
    h.leader_member_id,
    h.member_count,
    h.is_removed,
    COALESCE(h.generation, h.group_epoch, 0) AS epoch,
    h.record_offset,
    h.record_timestamp,
    h.state_timestamp
  FROM group_history AS h
), followed AS (
  SELECT
    t.*,
    LAG(is_removed) OVER (
      PARTITION BY log_id, offsets_partition, group_id
      ORDER BY record_offset NULLS FIRST
    ) AS was_removed,
    LAG(group_type) OVER (
      PARTITION BY log_id, offsets_partition, group_id
      ORDER BY record_offset NULLS FIRST
    ) AS type_before,
    LAG(member_count) OVER (
      PARTITION BY log_id, offsets_partition, group_id
      ORDER BY record_offset NULLS FIRST
    ) AS members_before,
    LAG(epoch) OVER (
      PARTITION BY log_id, offsets_partition, group_id
      ORDER BY record_offset NULLS FIRST
    ) AS epoch_before
  FROM told AS t
), lives AS (
  /* Epochs start again when a group was deleted and recreated, or changed its type while it had no members. */
  SELECT
    f.*,
    SUM(
      CASE
        WHEN was_removed
        OR epoch < epoch_before
        OR (
          group_type <> type_before AND members_before = 0
        )
        THEN 1
        ELSE 0
      END
    ) OVER (
      PARTITION BY log_id, offsets_partition, group_id
      ORDER BY record_offset NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS life,
    CASE
      WHEN group_type <> type_before
      AND epoch = epoch_before
      AND member_count < members_before
      AND NOT is_removed
      AND NOT was_removed
      THEN 1
      ELSE 0
    END AS begins_next /* When the last member with the newer protocol leaves, the record that makes the group classic has the previous epoch: the departure */ /* starts the next rebalance, as in any classic group. */
  FROM followed AS f
), dated AS (
  SELECT
    v.*,
    FIRST_VALUE(group_type) OVER (
      PARTITION BY log_id, offsets_partition, group_id, life, epoch
      ORDER BY record_offset NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS first_type,
    FIRST_VALUE(record_timestamp) OVER (
      PARTITION BY log_id, offsets_partition, group_id, life, epoch
      ORDER BY record_offset NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS first_at,
    FIRST_VALUE(state_timestamp) OVER (
      PARTITION BY log_id, offsets_partition, group_id, life, epoch
      ORDER BY record_offset NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS first_state_at,
    MAX(begins_next) OVER (
      PARTITION BY log_id, offsets_partition, group_id, life, epoch
      ORDER BY record_offset NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS is_of_next
  FROM lives AS v
), starts AS (
  SELECT
    log_id,
    offsets_partition,
    group_id,
    life,
    epoch,
    first_type AS group_type,
    MIN(record_offset) AS first_offset,
    MAX(record_offset) AS last_offset,
    MIN(first_at) AS started_at,
    MIN(first_state_at) AS state_at,
    MIN(
      CASE
        WHEN state IN ('Stable', 'Empty') AND group_type = first_type
        THEN record_timestamp
      END
    ) AS settled_at,
    MIN(
      CASE
        WHEN state IN ('Stable', 'Empty') AND group_type = first_type
        THEN record_offset
      END
    ) AS settled_offset
  FROM dated
  WHERE
    NOT is_removed AND epoch > 0 AND is_of_next = 0
  GROUP BY
    log_id,
    offsets_partition,
    group_id,
    life,
    epoch,
    first_type
), epochs AS (
  SELECT
    s.*,
    ROW_NUMBER() OVER (
      PARTITION BY s.offsets_partition, s.group_id, s.epoch, s.first_offset, s.started_at
      ORDER BY s.log_id DESC
    ) AS nth, /* Records that were left of a truncated log are in the next log, too. */
    LEAD(s.first_offset) OVER (
      PARTITION BY s.log_id, s.offsets_partition, s.group_id, s.life
      ORDER BY s.first_offset NULLS FIRST
    ) AS next_first,
    LEAD(s.first_offset) OVER (
      PARTITION BY s.log_id, s.offsets_partition, s.group_id
      ORDER BY s.first_offset NULLS FIRST
    ) AS until_offset,
    TRY_CAST(s.epoch - LAG(s.epoch) OVER (
      PARTITION BY s.log_id, s.offsets_partition, s.group_id, s.life
      ORDER BY s.first_offset NULLS FIRST
    ) - 1 AS INT) AS epochs_without_record
  FROM starts AS s
), conversions AS (
  SELECT
    log_id,
    offsets_partition,
    group_id,
    record_offset,
    begins_next = 1 AS begins_next
  FROM lives
  WHERE
    group_type <> type_before
), changes AS (
  /* A static member that comes back gets a new member id in the same epoch, without a rebalance. */
  SELECT
    m.log_id,
    m.offsets_partition,
    m.group_id,
    CASE WHEN c.begins_next THEN s.next_first ELSE s.first_offset END AS first_offset,
    m.change,
    COALESCE(m.group_instance_id, m.client_id) AS client,
    m.record_offset > s.first_offset
    AND NOT m.group_instance_id IS NULL
    AND NOT COALESCE(c.begins_next, FALSE) AS is_static_return
  FROM member_history AS m
  JOIN epochs AS s
    ON s.log_id = m.log_id
    AND s.offsets_partition = m.offsets_partition
    AND s.group_id = m.group_id
    AND s.epoch = m.epoch
    AND m.record_offset >= s.first_offset
    AND (
      s.until_offset IS NULL OR m.record_offset < s.until_offset
    )
  LEFT JOIN conversions AS c
    ON c.log_id = m.log_id
    AND c.offsets_partition = m.offsets_partition
    AND c.group_id = m.group_id
    AND c.record_offset = m.record_offset
), members AS (
  SELECT
    log_id,
    offsets_partition,
    group_id,
    first_offset,
    COUNT(CASE WHEN change = 'joined' AND NOT is_static_return THEN 1 END) AS joined,
    COUNT(CASE WHEN change = 'left' AND NOT is_static_return THEN 1 END) AS gone,
    COUNT(CASE WHEN change = 'joined' AND is_static_return THEN 1 END) AS static_returns,
    LISTAGG(
      CASE WHEN change = 'joined' AND NOT is_static_return THEN client END, ', '
      ORDER BY
        CASE WHEN change = 'joined' AND NOT is_static_return THEN client END NULLS FIRST
    ) AS joined_clients,
    LISTAGG(
      CASE WHEN change = 'left' AND NOT is_static_return THEN client END, ', '
      ORDER BY
        CASE WHEN change = 'left' AND NOT is_static_return THEN client END NULLS FIRST
    ) AS left_clients
  FROM changes
  GROUP BY
    log_id,
    offsets_partition,
    group_id,
    first_offset
), renamed AS (
  /* Classic groups record topic names, the others topic ids: a partition that a member keeps while the group changes its type did not move. */
  SELECT
    a.log_id,
    a.offsets_partition,
    a.group_id,
    a.record_offset,
    a.member_id,
    a.topic,
    a.partition
  FROM assignment_history AS a
  JOIN conversions AS c
    ON c.log_id = a.log_id
    AND c.offsets_partition = a.offsets_partition
    AND c.group_id = a.group_id
    AND c.record_offset = a.record_offset
  WHERE
    a.kind = 'assigned' AND a.change IN ('assigned', 'revoked')
  GROUP BY
    a.log_id,
    a.offsets_partition,
    a.group_id,
    a.record_offset,
    a.member_id,
    a.topic,
    a.partition
  HAVING
    COUNT(*) = 2 AND COUNT(a.topic_id) = 1
), moves AS (
  SELECT
    a.log_id,
    a.offsets_partition,
    a.group_id,
    CASE WHEN c.begins_next THEN s.next_first ELSE s.first_offset END AS first_offset,
    a.change
  FROM assignment_history AS a
  JOIN epochs AS s
    ON s.log_id = a.log_id
    AND s.offsets_partition = a.offsets_partition
    AND s.group_id = a.group_id
    AND s.epoch = a.epoch
    AND a.record_offset >= s.first_offset
    AND (
      s.until_offset IS NULL OR a.record_offset < s.until_offset
    )
  LEFT JOIN conversions AS c
    ON c.log_id = a.log_id
    AND c.offsets_partition = a.offsets_partition
    AND c.group_id = a.group_id
    AND c.record_offset = a.record_offset
  LEFT JOIN renamed AS r
    ON r.log_id = a.log_id
    AND r.offsets_partition = a.offsets_partition
    AND r.group_id = a.group_id
    AND r.record_offset = a.record_offset
    AND r.member_id = a.member_id
    AND r.topic = a.topic
    AND r.partition = a.partition
  WHERE
    a.kind IN ('assigned', 'active') AND r.record_offset IS NULL
), moved AS (
  SELECT
    log_id,
    offsets_partition,
    group_id,
    first_offset,
    COUNT(CASE WHEN change = 'assigned' THEN 1 END) AS assigned,
    COUNT(CASE WHEN change = 'revoked' THEN 1 END) AS revoked
  FROM moves
  GROUP BY
    log_id,
    offsets_partition,
    group_id,
    first_offset
), marks AS (
  SELECT
    log_id,
    offsets_partition,
    group_id,
    record_offset,
    record_timestamp AS commit_at,
    0 AS mark,
    TRY_CAST(NULL AS BIGINT) AS first_offset
  FROM offset_commits
  WHERE
    NOT is_tombstone
  UNION ALL
  SELECT
    log_id,
    offsets_partition,
    group_id,
    first_offset,
    NULL,
    1,
    first_offset
  FROM epochs
  UNION ALL
  SELECT
    log_id,
    offsets_partition,
    group_id,
    COALESCE(settled_offset, first_offset),
    NULL,
    2,
    first_offset
  FROM epochs
), beside AS (
  SELECT
    m.*,
    MAX(commit_at) OVER (
      PARTITION BY log_id, offsets_partition, group_id
      ORDER BY record_offset NULLS FIRST, mark NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS commit_before,
    MIN(commit_at) OVER (
      PARTITION BY log_id, offsets_partition, group_id
      ORDER BY record_offset NULLS FIRST, mark NULLS FIRST
      ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
    ) AS commit_after
  FROM marks AS m
), pauses AS (
  SELECT
    log_id,
    offsets_partition,
    group_id,
    first_offset,
    MAX(CASE WHEN mark = 1 THEN commit_before END) AS commit_before,
    MIN(CASE WHEN mark = 2 THEN commit_after END) AS commit_after
  FROM beside
  WHERE
    mark > 0
  GROUP BY
    log_id,
    offsets_partition,
    group_id,
    first_offset
)
/* With two brokers, or a clock that was set back, a later record may have an earlier time. The duration is then unknown. */
SELECT
  s.group_id,
  s.group_type,
  s.epoch,
  s.started_at,
  z.state,
  z.protocol,
  z.member_count,
  COALESCE(m.joined, 0) AS members_joined,
  COALESCE(m.gone, 0) AS members_left,
  COALESCE(m.static_returns, 0) AS static_returns,
  m.joined_clients,
  m.left_clients,
  COALESCE(v.assigned, 0) AS partitions_assigned,
  COALESCE(v.revoked, 0) AS partitions_revoked,
  CASE
    WHEN p.commit_after >= p.commit_before
    THEN (
      EPOCH_US(p.commit_after) - EPOCH_US(p.commit_before)
    ) // 1000
  END AS commit_pause_ms,
  CASE
    WHEN s.group_type = 'Classic' AND s.started_at >= s.state_at
    THEN (
      EPOCH_US(s.started_at) - EPOCH_US(s.state_at)
    ) // 1000
  END AS sync_ms,
  CASE
    WHEN s.group_type <> 'Classic' AND s.settled_at >= s.started_at
    THEN (
      EPOCH_US(s.settled_at) - EPOCH_US(s.started_at)
    ) // 1000
  END AS settle_ms,
  s.group_type <> 'Classic' AND s.settled_at IS NULL AND NOT s.next_first IS NULL AS is_superseded,
  s.epochs_without_record,
  z.leader_member_id,
  s.log_id,
  s.offsets_partition,
  s.first_offset AS record_offset
FROM epochs AS s
JOIN lives AS z
  ON z.log_id = s.log_id
  AND z.offsets_partition = s.offsets_partition
  AND z.group_id = s.group_id
  AND z.record_offset = s.last_offset
LEFT JOIN members AS m
  ON m.log_id = s.log_id
  AND m.offsets_partition = s.offsets_partition
  AND m.group_id = s.group_id
  AND m.first_offset = s.first_offset
LEFT JOIN moved AS v
  ON v.log_id = s.log_id
  AND v.offsets_partition = s.offsets_partition
  AND v.group_id = s.group_id
  AND v.first_offset = s.first_offset
LEFT JOIN pauses AS p
  ON p.log_id = s.log_id
  AND p.offsets_partition = s.offsets_partition
  AND p.group_id = s.group_id
  AND p.first_offset = s.first_offset
WHERE
  s.nth = 1
