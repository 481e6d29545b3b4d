-- Reads: clock, max_age, offsets_partitions, topic_partitions
WITH looks AS (
  SELECT
    p.offsets_partition,
    MAX(e.sampled_at) AS looked_at
  FROM offsets_partitions AS p
  JOIN topic_partitions AS e
    ON e.topic = '__consumer_offsets'
    AND e.partition = p.offsets_partition
    AND e.error IS NULL
    AND p.load_state = 'OWNED'
    AND p.next_offset BETWEEN e.last_stable_offset AND e.high_watermark
  GROUP BY
    p.offsets_partition
), holders AS (
  SELECT
    partition,
    MAX(open_transaction) AS open_transaction,
    MAX(open_transaction_since) AS open_transaction_since
  FROM topic_partitions
  WHERE
    topic = '__consumer_offsets' AND NOT open_transaction IS NULL
  GROUP BY
    partition
), looked AS (
  SELECT
    p.offsets_partition,
    p.load_state,
    p.coordinator_id,
    p.coordinator_available,
    now_at,
    max_age_seconds,
    CASE
      WHEN l.looked_at > p.caught_up_at OR p.caught_up_at IS NULL
      THEN l.looked_at
      ELSE p.caught_up_at
    END AS looked_at,
    CASE WHEN p.last_stable_offset_since < now_at THEN p.last_stable_offset_since END AS blocked_since,
    h.open_transaction,
    h.open_transaction_since
  FROM offsets_partitions AS p
  CROSS JOIN clock
  CROSS JOIN max_age
  LEFT JOIN looks AS l
    ON l.offsets_partition = p.offsets_partition
  LEFT JOIN holders AS h
    ON h.partition = p.offsets_partition AND p.last_stable_offset_since < now_at
), aged AS (
  SELECT
    k.*,
    TRY_CAST(EPOCH_US(now_at) - EPOCH_US(looked_at) AS DOUBLE) / NULLIF(TRY_CAST(1000000 AS DOUBLE), 0) AS age_seconds
  FROM looked AS k
), judged AS (
  SELECT
    a.*,
    NOT max_age_seconds IS NULL AND COALESCE(age_seconds > max_age_seconds, TRUE) AS is_stale
  FROM aged AS a
)
SELECT
  offsets_partition,
  load_state,
  CASE WHEN blocked_since < looked_at THEN blocked_since ELSE looked_at END AS as_of,
  blocked_since,
  open_transaction,
  open_transaction_since,
  is_stale,
  CASE
    WHEN is_stale
    THEN CASE load_state
      WHEN 'FAILED'
      THEN 'its offsets partition could not be loaded: '
      WHEN 'LOADING'
      THEN 'its offsets partition is being loaded: '
      ELSE ''
    END || CASE
      WHEN looked_at IS NULL
      THEN 'nothing is known yet'
      ELSE 'nothing is known of the last ' || TRY_CAST(TRY_CAST(FLOOR(age_seconds) AS BIGINT) AS TEXT) || ' s'
    END
  END AS stale_reason,
  CASE
    WHEN is_stale AND load_state = 'FAILED'
    THEN 'their offsets partitions could not be loaded'
    WHEN is_stale AND load_state = 'LOADING'
    THEN 'their offsets partitions are being loaded'
    WHEN is_stale AND COUNT(CASE WHEN NOT is_stale THEN 1 END) OVER () = 0
    THEN 'the job has not checked'
    WHEN NOT coordinator_available AND looked_at <= now_at
    THEN 'partitions that broker ' || TRY_CAST(coordinator_id AS TEXT) || ' led have no leader'
    WHEN is_stale
    THEN 'the job has not checked'
  END AS cause /* A job that has checked no partition does not know their leaders either, and present leaders are not those of a past time. */
FROM judged
