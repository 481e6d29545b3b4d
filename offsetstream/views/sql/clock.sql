-- The instant of which every view speaks, now, and since when those of a time speak. Who asks about others replaces this one relation.
--
--   now_at TIMESTAMP: Now
--   since_at TIMESTAMP: A day ago
SELECT current_timestamp() AS now_at, current_timestamp() - INTERVAL '1' DAY AS since_at
