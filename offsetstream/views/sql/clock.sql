-- The instant of which every view speaks, and since when those of a time speak. It is now, or, of tables that no job keeps any more
-- (`cluster.ended_at`), the last that they know of. Who asks about others replaces this one relation.
--
--   now_at TIMESTAMP: Now
--   since_at TIMESTAMP: A day ago
SELECT coalesce(ended_at, current_timestamp()) AS now_at, coalesce(ended_at, current_timestamp()) - INTERVAL '1' DAY AS since_at
FROM (SELECT max(ended_at) AS ended_at FROM cluster) AS c
