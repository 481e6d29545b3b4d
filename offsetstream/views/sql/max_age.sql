-- Helper: how old an answer about now may be before it is none. Who wants another age replaces this one relation.
--
--   max_age_seconds DOUBLE: Six times as long as the job means to have between two looks, two minutes at least; an hour where it ran once. Null: however old
SELECT CASE WHEN ended_at IS NOT NULL THEN NULL
            WHEN sample_interval_ms IS NULL THEN CAST(3600 AS DOUBLE)
            ELSE greatest(CAST(120 AS DOUBLE), CAST(sample_interval_ms AS DOUBLE) * CAST(6 AS DOUBLE) / CAST(1000 AS DOUBLE)) END AS max_age_seconds
FROM (SELECT max(sample_interval_ms) AS sample_interval_ms, max(ended_at) AS ended_at FROM cluster) AS c
