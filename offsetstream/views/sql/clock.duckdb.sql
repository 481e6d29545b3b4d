-- Reads: cluster
SELECT
  COALESCE(ended_at, CURRENT_TIMESTAMP) AS now_at,
  COALESCE(ended_at, CURRENT_TIMESTAMP) - INTERVAL '1' DAY AS since_at
FROM (
  SELECT
    MAX(ended_at) AS ended_at
  FROM cluster
) AS c
