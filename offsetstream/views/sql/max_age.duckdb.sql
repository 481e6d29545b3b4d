-- Reads: cluster
SELECT
  CASE
    WHEN NOT ended_at IS NULL
    THEN NULL
    WHEN sample_interval_ms IS NULL
    THEN TRY_CAST(3600 AS DOUBLE)
    ELSE GREATEST(
      TRY_CAST(120 AS DOUBLE),
      TRY_CAST(sample_interval_ms AS DOUBLE) * TRY_CAST(6 AS DOUBLE) / NULLIF(TRY_CAST(1000 AS DOUBLE), 0)
    )
  END AS max_age_seconds
FROM (
  SELECT
    MAX(sample_interval_ms) AS sample_interval_ms,
    MAX(ended_at) AS ended_at
  FROM cluster
) AS c
