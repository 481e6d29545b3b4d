-- Reads: assignment_history, group_history, member_history, offset_commits
WITH lives AS (
  /* A group that was deleted and made again counts its epochs from the start. */
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
    h.state_timestamp,
    COALESCE(
      SUM(CASE WHEN h.is_removed THEN 1 ELSE 0 END) OVER (
        PARTITION BY h.log_id, h.offsets_partition, h.group_id
        ORDER BY h.record_offset NULLS FIRST
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ),
      0
    ) AS life
  FROM group_history AS h
), starts AS (
  SELECT
    log_id,
    offsets_partition,
    group_id,
    life,
    epoch,
    MIN(group_type) AS group_type,
    MIN(record_offset) AS first_offset,
    MAX(record_offset) AS last_offset,
    MIN(record_timestamp) AS started_at,
    MIN(state_timestamp) AS state_at,
    MIN(CASE WHEN state IN ('Stable', 'Empty') THEN record_timestamp END) AS settled_at,
    MIN(CASE WHEN state IN ('Stable', 'Empty') THEN record_offset END) AS settled_offset
  FROM lives
  WHERE
    NOT is_removed AND epoch > 0
  GROUP BY
    log_id,
    offsets_partition,
    group_id,
    life,
    epoch
), ends AS (
  SELECT
    log_id,
    offsets_partition,
    group_id,
    life,
    MIN(record_offset) AS removed_offset
  FROM lives
  WHERE
    is_removed
  GROUP BY
    log_id,
    offsets_partition,
    group_id,
    life
), epochs AS (
  SELECT
    s.*,
    e.removed_offset,
    ROW_NUMBER() OVER (
      PARTITION BY s.offsets_partition, s.group_id, s.epoch, s.first_offset, s.started_at
      ORDER BY s.log_id DESC
    ) AS nth, /* What was left of a log that was cut is in the next one, too. */
    LEAD(s.first_offset) OVER (
      PARTITION BY s.log_id, s.offsets_partition, s.group_id, s.life
      ORDER BY s.first_offset NULLS FIRST
    ) AS next_first,
    TRY_CAST(s.epoch - LAG(s.epoch) OVER (
      PARTITION BY s.log_id, s.offsets_partition, s.group_id, s.life
      ORDER BY s.first_offset NULLS FIRST
    ) - 1 AS INT) AS epochs_without_record
  FROM starts AS s
  LEFT JOIN ends AS e
    ON e.log_id = s.log_id
    AND e.offsets_partition = s.offsets_partition
    AND e.group_id = s.group_id
    AND e.life = s.life
), changes AS (
  /* A static member that comes back makes a classic group write its record again in the same generation: no rebalance. */
  SELECT
    m.log_id,
    m.offsets_partition,
    m.group_id,
    s.life,
    s.epoch,
    m.change,
    COALESCE(m.group_instance_id, m.client_id) AS client,
    s.group_type = 'Classic'
    AND m.record_offset > s.first_offset
    AND NOT m.group_instance_id IS NULL AS is_static_return
  FROM member_history AS m
  JOIN epochs AS s
    ON s.log_id = m.log_id
    AND s.offsets_partition = m.offsets_partition
    AND s.group_id = m.group_id
    AND s.epoch = m.epoch
    AND m.record_offset >= s.first_offset
    AND (
      s.removed_offset IS NULL OR m.record_offset <= s.removed_offset
    )
), members AS (
  SELECT
    log_id,
    offsets_partition,
    group_id,
    life,
    epoch,
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
    life,
    epoch
), moved AS (
  SELECT
    s.log_id,
    s.offsets_partition,
    s.group_id,
    s.life,
    s.epoch,
    COUNT(CASE WHEN a.change = 'assigned' THEN 1 END) AS assigned,
    COUNT(CASE WHEN a.change = 'revoked' THEN 1 END) AS revoked
  FROM assignment_history AS a
  JOIN epochs AS s
    ON s.log_id = a.log_id
    AND s.offsets_partition = a.offsets_partition
    AND s.group_id = a.group_id
    AND s.epoch = a.epoch
    AND a.record_offset >= s.first_offset
    AND (
      s.removed_offset IS NULL OR a.record_offset <= s.removed_offset
    )
  WHERE
    a.kind IN ('assigned', 'active')
  GROUP BY
    s.log_id,
    s.offsets_partition,
    s.group_id,
    s.life,
    s.epoch
), marks AS (
  SELECT
    log_id,
    offsets_partition,
    group_id,
    record_offset,
    record_timestamp AS commit_at,
    0 AS mark,
    TRY_CAST(NULL AS BIGINT) AS life,
    TRY_CAST(NULL AS INT) AS epoch
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
    life,
    epoch
  FROM epochs
  UNION ALL
  SELECT
    log_id,
    offsets_partition,
    group_id,
    COALESCE(settled_offset, first_offset),
    NULL,
    2,
    life,
    epoch
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
    life,
    epoch,
    MAX(CASE WHEN mark = 1 THEN commit_before END) AS commit_before,
    MIN(CASE WHEN mark = 2 THEN commit_after END) AS commit_after
  FROM beside
  WHERE
    mark > 0
  GROUP BY
    log_id,
    offsets_partition,
    group_id,
    life,
    epoch
)
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
  (
    EPOCH_US(p.commit_after) - EPOCH_US(p.commit_before)
  ) // 1000 AS commit_pause_ms,
  CASE
    WHEN s.group_type = 'Classic'
    THEN (
      EPOCH_US(s.started_at) - EPOCH_US(s.state_at)
    ) // 1000
  END AS sync_ms,
  CASE
    WHEN s.group_type <> 'Classic'
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
  AND m.life = s.life
  AND m.epoch = s.epoch
LEFT JOIN moved AS v
  ON v.log_id = s.log_id
  AND v.offsets_partition = s.offsets_partition
  AND v.group_id = s.group_id
  AND v.life = s.life
  AND v.epoch = s.epoch
LEFT JOIN pauses AS p
  ON p.log_id = s.log_id
  AND p.offsets_partition = s.offsets_partition
  AND p.group_id = s.group_id
  AND p.life = s.life
  AND p.epoch = s.epoch
WHERE
  s.nth = 1
