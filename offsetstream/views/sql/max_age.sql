-- Helper: how old data may be before answers about now become unknown. To use another age, replace this relation only.
--
--   max_age_seconds DOUBLE: Greatest age in seconds: six check intervals of the job, at least two minutes; an hour if the job ran once. Null: any age is accepted
SELECT CASE WHEN ended_at IS NOT NULL THEN NULL
            WHEN sample_interval_ms IS NULL THEN CAST(3600 AS DOUBLE)
            ELSE greatest(CAST(120 AS DOUBLE), CAST(sample_interval_ms AS DOUBLE) * CAST(6 AS DOUBLE) / CAST(1000 AS DOUBLE)) END AS max_age_seconds
FROM (SELECT max(sample_interval_ms) AS sample_interval_ms, max(ended_at) AS ended_at FROM cluster) AS c
