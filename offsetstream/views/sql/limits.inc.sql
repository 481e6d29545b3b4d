-- The user's thresholds by group. NaN is above every number: where a column was made as DOUBLE, it would switch an alarm off.
limits AS (
  SELECT group_id, max(nullif(allowed_lag, CAST('NaN' AS DOUBLE))) AS allowed_lag,
         max(nullif(minimum_complete, CAST('NaN' AS DOUBLE))) AS minimum_complete, max(nullif(intervals, CAST('NaN' AS DOUBLE))) AS intervals,
         max(nullif(window_seconds, CAST('NaN' AS DOUBLE))) AS window_seconds,
         max(nullif(max_time_lag_seconds, CAST('NaN' AS DOUBLE))) AS max_time_lag_seconds
  FROM thresholds GROUP BY group_id
)
