-- Reads: cluster
SELECT
  CASE
    WHEN NOT ended_at IS NULL
    THEN NULL
    WHEN looks_every_ms IS NULL
    THEN TRY_CAST(3600 AS DOUBLE)
    ELSE GREATEST(
      TRY_CAST(120 AS DOUBLE),
      TRY_CAST(looks_every_ms AS DOUBLE) * TRY_CAST(6 AS DOUBLE) / NULLIF(TRY_CAST(1000 AS DOUBLE), 0)
    )
  END AS max_age_seconds
FROM (
  SELECT
    MAX(looks_every_ms) AS looks_every_ms,
    MAX(ended_at) AS ended_at
  FROM cluster
) AS c
