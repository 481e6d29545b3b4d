-- Helper: groups with six or more rebalances in the last five minutes and a client that left and came back repeatedly. A group where each
-- client leaves and comes back once, as in a rolling restart, is not included.
--
--   offsets_partition INT: Offsets partition of the group
--   group_id STRING: Group id
--   rebalances BIGINT: Number of rebalances in the last five minutes
--   client_id STRING: Client id of the client that left most often
--   client_host STRING: Host of that client
--   leaves BIGINT: Number of times that it left
WITH recent AS (
  SELECT h.offsets_partition, h.group_id, count(DISTINCT coalesce(h.generation, h.group_epoch)) AS rebalances
  FROM group_history AS h
  JOIN offsets_partitions AS p ON p.offsets_partition = h.offsets_partition AND p.log_id = h.log_id
  JOIN freshness AS f ON f.offsets_partition = h.offsets_partition
  CROSS JOIN clock
  WHERE NOT h.is_removed AND h.record_timestamp > least(now_at, f.as_of) - INTERVAL '5' MINUTE AND NOT f.is_stale
  GROUP BY h.offsets_partition, h.group_id
), left_often AS (
  -- Clients of one host may share an id. Each client present at the start may restart once and then leave for good.
  SELECT m.offsets_partition, m.group_id, m.client_id, m.client_host, count(CASE WHEN m.change = 'left' THEN 1 END) AS leaves,
         count(CASE WHEN m.change = 'joined' THEN 1 END) AS joins
  FROM member_history AS m
  JOIN recent AS r ON r.offsets_partition = m.offsets_partition AND r.group_id = m.group_id AND r.rebalances >= 6
  JOIN offsets_partitions AS p ON p.offsets_partition = m.offsets_partition AND p.log_id = m.log_id
  JOIN freshness AS f ON f.offsets_partition = m.offsets_partition
  CROSS JOIN clock
  WHERE m.change IN ('joined', 'left') AND m.record_timestamp > least(now_at, f.as_of) - INTERVAL '5' MINUTE
  GROUP BY m.offsets_partition, m.group_id, m.client_id, m.client_host
), present AS (
  SELECT offsets_partition, group_id, client_id, client_host, count(*) AS members FROM group_members GROUP BY offsets_partition, group_id, client_id, client_host
), ranked AS (
  SELECT l.*, row_number() OVER (PARTITION BY l.offsets_partition, l.group_id ORDER BY l.leaves DESC, l.client_id NULLS FIRST, l.client_host NULLS FIRST) AS nth
  FROM left_often AS l
  LEFT JOIN present AS p
    ON p.offsets_partition = l.offsets_partition AND p.group_id = l.group_id AND p.client_id = l.client_id
   AND p.client_host IS NOT DISTINCT FROM l.client_host
  WHERE l.leaves > 2 * greatest(1, coalesce(p.members, 0) + l.leaves - l.joins)
)
SELECT k.offsets_partition, k.group_id, r.rebalances, k.client_id, k.client_host, k.leaves
FROM ranked AS k JOIN recent AS r ON r.offsets_partition = k.offsets_partition AND r.group_id = k.group_id
WHERE k.nth = 1
