-- One row per generation (classic) or epoch of a group: when it started, its size, which members joined and left, which partitions moved,
-- and how long no offset was committed. Of a classic group's rebalance the log records only the end (SyncGroup), so commit_pause_ms tells
-- you more than sync_ms. When the last member with the newer protocol leaves, the group becomes classic and rebalances. That member appears
-- as left in the row of the next generation. No duration is negative: where clocks differ and it would be negative, it is null.
--
--   group_id STRING: Group id
--   group_type STRING: Type of the group when the generation or epoch started
--   epoch INT: Generation or group epoch
--   started_at TIMESTAMP: Time of the first record of the generation or epoch
--   state STRING: State in the last record of the generation or epoch
--   protocol STRING: Assignor of a classic group
--   member_count INT: Number of members in the last record of the generation or epoch
--   members_joined BIGINT: Members that joined
--   members_left BIGINT: Members that left
--   static_returns BIGINT: Static members that came back without a rebalance
--   joined_clients STRING: Client ids, or instance ids, of the members that joined
--   left_clients STRING: Client ids, or instance ids, of the members that left
--   partitions_assigned BIGINT: Number of partitions newly assigned to a member
--   partitions_revoked BIGINT: Number of partitions revoked from a member
--   commit_pause_ms BIGINT: Milliseconds from the last commit before to the first commit after
--   sync_ms BIGINT: Milliseconds from the start of SyncGroup to the record of a classic group
--   settle_ms BIGINT: Milliseconds from the first record of the epoch to Stable or Empty; null for classic groups, and if the next epoch came first
--   is_superseded BOOLEAN: Whether the next epoch started before this one settled
--   epochs_without_record INT: Generations or epochs without a record since the previous row: rebalances that did not finish
--   leader_member_id STRING: Leader of a classic group
--   log_id INT: Log of the offsets partition
--   offsets_partition INT: Offsets partition of the group
--   record_offset BIGINT: Offset of the first record
WITH told AS (
  SELECT h.log_id, h.offsets_partition, h.group_id, h.group_type, h.state, h.protocol, h.leader_member_id, h.member_count, h.is_removed,
         coalesce(h.generation, h.group_epoch, 0) AS epoch, h.record_offset, h.record_timestamp, h.state_timestamp
  FROM group_history AS h
), followed AS (
  SELECT t.*, lag(is_removed) OVER (PARTITION BY log_id, offsets_partition, group_id ORDER BY record_offset NULLS FIRST) AS was_removed,
         lag(group_type) OVER (PARTITION BY log_id, offsets_partition, group_id ORDER BY record_offset NULLS FIRST) AS type_before,
         lag(member_count) OVER (PARTITION BY log_id, offsets_partition, group_id ORDER BY record_offset NULLS FIRST) AS members_before,
         lag(epoch) OVER (PARTITION BY log_id, offsets_partition, group_id ORDER BY record_offset NULLS FIRST) AS epoch_before
  FROM told AS t
), lives AS (
  -- Epochs start again when a group was deleted and recreated, or changed its type while it had no members.
  SELECT f.*, sum(CASE WHEN was_removed OR epoch < epoch_before OR (group_type <> type_before AND members_before = 0) THEN 1 ELSE 0 END) OVER (
           PARTITION BY log_id, offsets_partition, group_id ORDER BY record_offset NULLS FIRST ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS life,
         -- When the last member with the newer protocol leaves, the record that makes the group classic has the previous epoch: the departure
         -- starts the next rebalance, as in any classic group.
         CASE WHEN group_type <> type_before AND epoch = epoch_before AND member_count < members_before AND NOT is_removed AND NOT was_removed
           THEN 1 ELSE 0 END AS begins_next
  FROM followed AS f
), dated AS (
  SELECT v.*, first_value(group_type) OVER (PARTITION BY log_id, offsets_partition, group_id, life, epoch ORDER BY record_offset NULLS FIRST
           ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS first_type,
         first_value(record_timestamp) OVER (PARTITION BY log_id, offsets_partition, group_id, life, epoch ORDER BY record_offset NULLS FIRST
           ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS first_at,
         first_value(state_timestamp) OVER (PARTITION BY log_id, offsets_partition, group_id, life, epoch ORDER BY record_offset NULLS FIRST
           ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS first_state_at,
         max(begins_next) OVER (PARTITION BY log_id, offsets_partition, group_id, life, epoch ORDER BY record_offset NULLS FIRST
           ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS is_of_next
  FROM lives AS v
), starts AS (
  SELECT log_id, offsets_partition, group_id, life, epoch, first_type AS group_type, min(record_offset) AS first_offset,
         max(record_offset) AS last_offset, min(first_at) AS started_at, min(first_state_at) AS state_at,
         min(CASE WHEN state IN ('Stable', 'Empty') AND group_type = first_type THEN record_timestamp END) AS settled_at,
         min(CASE WHEN state IN ('Stable', 'Empty') AND group_type = first_type THEN record_offset END) AS settled_offset
  FROM dated WHERE NOT is_removed AND epoch > 0 AND is_of_next = 0
  GROUP BY log_id, offsets_partition, group_id, life, epoch, first_type
), epochs AS (
  SELECT s.*,
         -- Records that were left of a truncated log are in the next log, too.
         row_number() OVER (PARTITION BY s.offsets_partition, s.group_id, s.epoch, s.first_offset, s.started_at ORDER BY s.log_id DESC) AS nth,
         lead(s.first_offset) OVER (PARTITION BY s.log_id, s.offsets_partition, s.group_id, s.life ORDER BY s.first_offset NULLS FIRST) AS next_first,
         lead(s.first_offset) OVER (PARTITION BY s.log_id, s.offsets_partition, s.group_id ORDER BY s.first_offset NULLS FIRST) AS until_offset,
         CAST(s.epoch - lag(s.epoch) OVER (PARTITION BY s.log_id, s.offsets_partition, s.group_id, s.life ORDER BY s.first_offset NULLS FIRST) - 1 AS INT) AS epochs_without_record
  FROM starts AS s
), conversions AS (
  SELECT log_id, offsets_partition, group_id, record_offset, begins_next = 1 AS begins_next FROM lives WHERE group_type <> type_before
), changes AS (
  -- A static member that comes back gets a new member id in the same epoch, without a rebalance.
  SELECT m.log_id, m.offsets_partition, m.group_id, CASE WHEN c.begins_next THEN s.next_first ELSE s.first_offset END AS first_offset,
         m.change, coalesce(m.group_instance_id, m.client_id) AS client,
         m.record_offset > s.first_offset AND m.group_instance_id IS NOT NULL AND NOT coalesce(c.begins_next, false) AS is_static_return
  FROM member_history AS m
  JOIN epochs AS s
    ON s.log_id = m.log_id AND s.offsets_partition = m.offsets_partition AND s.group_id = m.group_id AND s.epoch = m.epoch
   AND m.record_offset >= s.first_offset AND (s.until_offset IS NULL OR m.record_offset < s.until_offset)
  LEFT JOIN conversions AS c
    ON c.log_id = m.log_id AND c.offsets_partition = m.offsets_partition AND c.group_id = m.group_id AND c.record_offset = m.record_offset
), members AS (
  SELECT log_id, offsets_partition, group_id, first_offset,
         count(CASE WHEN change = 'joined' AND NOT is_static_return THEN 1 END) AS joined,
         count(CASE WHEN change = 'left' AND NOT is_static_return THEN 1 END) AS gone,
         count(CASE WHEN change = 'joined' AND is_static_return THEN 1 END) AS static_returns,
         listagg(CASE WHEN change = 'joined' AND NOT is_static_return THEN client END, ', ') WITHIN GROUP (
           ORDER BY CASE WHEN change = 'joined' AND NOT is_static_return THEN client END NULLS FIRST) AS joined_clients,
         listagg(CASE WHEN change = 'left' AND NOT is_static_return THEN client END, ', ') WITHIN GROUP (
           ORDER BY CASE WHEN change = 'left' AND NOT is_static_return THEN client END NULLS FIRST) AS left_clients
  FROM changes GROUP BY log_id, offsets_partition, group_id, first_offset
), renamed AS (
  -- Classic groups record topic names, the others topic ids: a partition that a member keeps while the group changes its type did not move.
  SELECT a.log_id, a.offsets_partition, a.group_id, a.record_offset, a.member_id, a.topic, a.partition
  FROM assignment_history AS a
  JOIN conversions AS c
    ON c.log_id = a.log_id AND c.offsets_partition = a.offsets_partition AND c.group_id = a.group_id AND c.record_offset = a.record_offset
  WHERE a.kind = 'assigned' AND a.change IN ('assigned', 'revoked')
  GROUP BY a.log_id, a.offsets_partition, a.group_id, a.record_offset, a.member_id, a.topic, a.partition
  HAVING count(*) = 2 AND count(a.topic_id) = 1
), moves AS (
  SELECT a.log_id, a.offsets_partition, a.group_id, CASE WHEN c.begins_next THEN s.next_first ELSE s.first_offset END AS first_offset, a.change
  FROM assignment_history AS a
  JOIN epochs AS s
    ON s.log_id = a.log_id AND s.offsets_partition = a.offsets_partition AND s.group_id = a.group_id AND s.epoch = a.epoch
   AND a.record_offset >= s.first_offset AND (s.until_offset IS NULL OR a.record_offset < s.until_offset)
  LEFT JOIN conversions AS c
    ON c.log_id = a.log_id AND c.offsets_partition = a.offsets_partition AND c.group_id = a.group_id AND c.record_offset = a.record_offset
  LEFT JOIN renamed AS r
    ON r.log_id = a.log_id AND r.offsets_partition = a.offsets_partition AND r.group_id = a.group_id AND r.record_offset = a.record_offset
   AND r.member_id = a.member_id AND r.topic = a.topic AND r.partition = a.partition
  WHERE a.kind IN ('assigned', 'active') AND r.record_offset IS NULL
), moved AS (
  SELECT log_id, offsets_partition, group_id, first_offset, count(CASE WHEN change = 'assigned' THEN 1 END) AS assigned,
         count(CASE WHEN change = 'revoked' THEN 1 END) AS revoked
  FROM moves GROUP BY log_id, offsets_partition, group_id, first_offset
), marks AS (
  SELECT log_id, offsets_partition, group_id, record_offset, record_timestamp AS commit_at, 0 AS mark, CAST(NULL AS BIGINT) AS first_offset
  FROM offset_commits WHERE NOT is_tombstone
  UNION ALL SELECT log_id, offsets_partition, group_id, first_offset, NULL, 1, first_offset FROM epochs
  UNION ALL SELECT log_id, offsets_partition, group_id, coalesce(settled_offset, first_offset), NULL, 2, first_offset FROM epochs
), beside AS (
  SELECT m.*,
         max(commit_at) OVER (PARTITION BY log_id, offsets_partition, group_id ORDER BY record_offset NULLS FIRST, mark NULLS FIRST
           ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS commit_before,
         min(commit_at) OVER (PARTITION BY log_id, offsets_partition, group_id ORDER BY record_offset NULLS FIRST, mark NULLS FIRST
           ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS commit_after
  FROM marks AS m
), pauses AS (
  SELECT log_id, offsets_partition, group_id, first_offset, max(CASE WHEN mark = 1 THEN commit_before END) AS commit_before,
         min(CASE WHEN mark = 2 THEN commit_after END) AS commit_after
  FROM beside WHERE mark > 0 GROUP BY log_id, offsets_partition, group_id, first_offset
)
-- With two brokers, or a clock that was set back, a later record may have an earlier time. The duration is then unknown.
SELECT s.group_id, s.group_type, s.epoch, s.started_at, z.state, z.protocol, z.member_count,
       coalesce(m.joined, 0) AS members_joined, coalesce(m.gone, 0) AS members_left, coalesce(m.static_returns, 0) AS static_returns,
       m.joined_clients, m.left_clients, coalesce(v.assigned, 0) AS partitions_assigned, coalesce(v.revoked, 0) AS partitions_revoked,
       CASE WHEN p.commit_after >= p.commit_before THEN (unix_micros(p.commit_after) - unix_micros(p.commit_before)) div 1000 END AS commit_pause_ms,
       CASE WHEN s.group_type = 'Classic' AND s.started_at >= s.state_at
         THEN (unix_micros(s.started_at) - unix_micros(s.state_at)) div 1000 END AS sync_ms,
       CASE WHEN s.group_type <> 'Classic' AND s.settled_at >= s.started_at
         THEN (unix_micros(s.settled_at) - unix_micros(s.started_at)) div 1000 END AS settle_ms,
       s.group_type <> 'Classic' AND s.settled_at IS NULL AND s.next_first IS NOT NULL AS is_superseded,
       s.epochs_without_record, z.leader_member_id, s.log_id, s.offsets_partition, s.first_offset AS record_offset
FROM epochs AS s
JOIN lives AS z ON z.log_id = s.log_id AND z.offsets_partition = s.offsets_partition AND z.group_id = s.group_id AND z.record_offset = s.last_offset
LEFT JOIN members AS m ON m.log_id = s.log_id AND m.offsets_partition = s.offsets_partition AND m.group_id = s.group_id AND m.first_offset = s.first_offset
LEFT JOIN moved AS v ON v.log_id = s.log_id AND v.offsets_partition = s.offsets_partition AND v.group_id = s.group_id AND v.first_offset = s.first_offset
LEFT JOIN pauses AS p ON p.log_id = s.log_id AND p.offsets_partition = s.offsets_partition AND p.group_id = s.group_id AND p.first_offset = s.first_offset
WHERE s.nth = 1
