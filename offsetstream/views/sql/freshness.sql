-- One row per offsets partition: how recent the data of its groups is, and whether it is too old to describe the present.
--
--   offsets_partition INT: Offsets partition
--   load_state STRING: LOADING, OWNED, FAILED or UNLOADED
--   as_of TIMESTAMP: Everything that the partition contained at this time is in the tables; null if it was never complete
--   blocked_since TIMESTAMP: Time since which an open transaction blocks the offsets partition; null if none does
--   open_transaction STRING: Transactional id of that transaction, if known
--   open_transaction_since TIMESTAMP: Time at which that transaction started
--   is_stale BOOLEAN: Whether the job's last check is older than allowed. While a transaction blocks the partition, the time of the check counts instead of as_of
--   stale_reason STRING: What is stale, and for how long; null if nothing is
--   cause STRING: Cause shared with other offsets partitions, or that the broker that led them has gone; null if nothing is wrong
WITH looks AS (
  SELECT p.offsets_partition, max(e.sampled_at) AS looked_at
  FROM offsets_partitions AS p
  JOIN topic_partitions AS e
    ON e.topic = '__consumer_offsets' AND e.partition = p.offsets_partition AND e.error IS NULL
   AND p.load_state = 'OWNED' AND p.next_offset BETWEEN e.last_stable_offset AND e.high_watermark
  GROUP BY p.offsets_partition
), holders AS (
  SELECT partition, max(open_transaction) AS open_transaction, max(open_transaction_since) AS open_transaction_since
  FROM topic_partitions WHERE topic = '__consumer_offsets' AND open_transaction IS NOT NULL
  GROUP BY partition
), looked AS (
  SELECT p.offsets_partition, p.load_state, p.coordinator_id, p.coordinator_available, now_at, max_age_seconds,
         CASE WHEN l.looked_at > p.caught_up_at OR p.caught_up_at IS NULL THEN l.looked_at ELSE p.caught_up_at END AS looked_at,
         CASE WHEN p.last_stable_offset_since < now_at THEN p.last_stable_offset_since END AS blocked_since,
         h.open_transaction, h.open_transaction_since
  FROM offsets_partitions AS p CROSS JOIN clock CROSS JOIN max_age
  LEFT JOIN looks AS l ON l.offsets_partition = p.offsets_partition
  LEFT JOIN holders AS h ON h.partition = p.offsets_partition AND p.last_stable_offset_since < now_at
), aged AS (
  SELECT k.*, CAST(unix_micros(now_at) - unix_micros(looked_at) AS DOUBLE) / CAST(1000000 AS DOUBLE) AS age_seconds FROM looked AS k
), judged AS (
  SELECT a.*, max_age_seconds IS NOT NULL AND coalesce(age_seconds > max_age_seconds, true) AS is_stale FROM aged AS a
)
SELECT offsets_partition, load_state, CASE WHEN blocked_since < looked_at THEN blocked_since ELSE looked_at END AS as_of, blocked_since, open_transaction, open_transaction_since, is_stale,
       CASE WHEN is_stale THEN
         CASE load_state WHEN 'FAILED' THEN 'its offsets partition could not be loaded: ' WHEN 'LOADING' THEN 'its offsets partition is being loaded: ' ELSE '' END
         || CASE WHEN looked_at IS NULL THEN 'nothing is known yet'
              ELSE 'nothing is known of the last ' || CAST(CAST(floor(age_seconds) AS BIGINT) AS STRING) || ' s' END END AS stale_reason,
       -- A job that has checked no partition does not know their leaders either, and present leaders are not those of a past time.
       CASE WHEN is_stale AND load_state = 'FAILED' THEN 'their offsets partitions could not be loaded'
            WHEN is_stale AND load_state = 'LOADING' THEN 'their offsets partitions are being loaded'
            WHEN is_stale AND count(CASE WHEN NOT is_stale THEN 1 END) OVER () = 0 THEN 'the job has not checked'
            WHEN NOT coordinator_available AND looked_at <= now_at THEN 'partitions that broker ' || CAST(coordinator_id AS STRING) || ' led have no leader'
            WHEN is_stale THEN 'the job has not checked' END AS cause
FROM judged
