-- Your thresholds by group. NaN is greater than every number: in a column of type DOUBLE it would switch an alert off.
limits AS (
  SELECT group_id, max(nullif(allowed_lag, CAST('NaN' AS DOUBLE))) AS allowed_lag,
         max(nullif(minimum_complete, CAST('NaN' AS DOUBLE))) AS minimum_complete, max(nullif(intervals, CAST('NaN' AS DOUBLE))) AS intervals,
         max(nullif(window_seconds, CAST('NaN' AS DOUBLE))) AS window_seconds,
         max(nullif(max_time_lag_seconds, CAST('NaN' AS DOUBLE))) AS max_time_lag_seconds
  FROM thresholds GROUP BY group_id
)
