-- The time that all views use as now, and the start of the period of views that cover a period. Now is the current time. If no job updates
-- the tables any more (`cluster.ended_at`), it is the last time that they know. To query another time, replace this relation only.
--
--   now_at TIMESTAMP: Now
--   since_at TIMESTAMP: Start of the period: a day ago
SELECT coalesce(ended_at, current_timestamp) AS now_at, coalesce(ended_at, current_timestamp) - INTERVAL '1' DAY AS since_at
FROM (SELECT max(ended_at) AS ended_at FROM cluster) AS c
