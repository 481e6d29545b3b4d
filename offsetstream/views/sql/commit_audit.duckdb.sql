-- Reads: assignment_intervals, commit_context, end_intervals, offset_commits
WITH steps AS (
  SELECT
    log_id,
    offsets_partition,
    group_id,
    topic,
    partition,
    record_offset,
    record_timestamp,
    is_tombstone,
    committed_offset,
    topic_id,
    metadata,
    leader_epoch,
    LAG(is_tombstone) OVER (
      PARTITION BY log_id, offsets_partition, group_id, topic, partition
      ORDER BY record_offset NULLS FIRST
    ) AS after_tombstone,
    LAST_VALUE(committed_offset IGNORE NULLS) OVER (
      PARTITION BY log_id, offsets_partition, group_id, topic, partition
      ORDER BY record_offset NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS previous_offset,
    LAST_VALUE(topic_id IGNORE NULLS) OVER (
      PARTITION BY log_id, offsets_partition, group_id, topic, partition
      ORDER BY record_offset NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS previous_topic_id,
    COUNT(committed_offset) OVER (
      PARTITION BY log_id, offsets_partition, group_id, topic, partition
      ORDER BY record_offset NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS commits_before,
    COUNT(*) OVER (PARTITION BY log_id, offsets_partition, group_id, record_timestamp) AS partitions_at_once
  FROM offset_commits
), habits AS (
  SELECT
    s.*,
    committed_offset - previous_offset AS moved,
    MAX(committed_offset - previous_offset) OVER (
      PARTITION BY log_id, offsets_partition, group_id, topic, partition
      ORDER BY record_offset NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS longest_step
  FROM steps AS s
), told AS (
  SELECT
    h.*,
    h.topic_id <> h.previous_topic_id AS is_other_topic,
    COALESCE(h.after_tombstone, FALSE) AS is_again,
    x.group_state,
    x.member_count,
    x.group_epoch,
    x.has_owners
  FROM habits AS h
  JOIN commit_context AS x
    ON x.log_id = h.log_id
    AND x.offsets_partition = h.offsets_partition
    AND x.record_offset = h.record_offset
  WHERE
    NOT h.is_tombstone
), owned AS (
  /* A cooperative member that gives up a partition in this generation commits it once more before another member gets it. */
  SELECT
    t.log_id,
    t.offsets_partition,
    t.record_offset,
    COALESCE(
      MIN(
        CASE
          WHEN a.to_record_offset IS NULL OR a.to_record_offset > t.record_offset
          THEN a.member_id
        END
      ),
      MIN(a.member_id)
    ) AS member_id,
    COALESCE(
      MIN(
        CASE
          WHEN a.to_record_offset IS NULL OR a.to_record_offset > t.record_offset
          THEN a.client_id
        END
      ),
      MIN(a.client_id)
    ) AS client_id,
    COALESCE(
      MIN(
        CASE
          WHEN a.to_record_offset IS NULL OR a.to_record_offset > t.record_offset
          THEN a.client_host
        END
      ),
      MIN(a.client_host)
    ) AS client_host
  FROM told AS t
  JOIN assignment_intervals AS a
    ON a.offsets_partition = t.offsets_partition
    AND a.log_id = t.log_id
    AND a.group_id = t.group_id
    AND a.topic = t.topic
    AND a.partition = t.partition
    AND a.kind IN ('assigned', 'pending_revocation')
    AND a.from_record_offset < t.record_offset
    AND (
      a.to_record_offset IS NULL
      OR a.to_record_offset > t.record_offset
      OR (
        a.revoked_in_epoch = t.group_epoch AND t.member_count > 0
      )
    )
  GROUP BY
    t.log_id,
    t.offsets_partition,
    t.record_offset
), judged AS (
  SELECT
    t.*,
    o.member_id AS owner_member_id,
    o.client_id AS owner_client_id,
    o.client_host AS owner_host,
    CASE
      WHEN t.is_other_topic
      THEN 'the topic was recreated'
      WHEN t.is_again AND t.moved < 0
      THEN 'read again: its offset had been deleted'
      WHEN t.is_again AND t.moved > 0
      THEN 'skipped ahead: its offset had been deleted'
      WHEN t.moved < 0 AND t.member_count = 0
      THEN 'moved back while the group had no members'
      WHEN t.moved < 0 AND t.has_owners AND o.member_id IS NULL
      THEN 'moved back by a client that is not the owner'
      WHEN t.moved < 0 AND NOT o.member_id IS NULL
      THEN 'moved back by its owner'
      WHEN t.moved < 0
      THEN 'moved back'
      WHEN t.moved > 0 AND t.member_count = 0 AND t.group_epoch > 0
      THEN 'moved forward while the group had no members'
      WHEN t.moved = 0 AND t.member_count = 0 AND t.group_epoch > 0
      THEN 'committed while the group had no members'
      WHEN t.member_count > 0 AND t.has_owners AND o.member_id IS NULL
      THEN 'committed by a client that is not the owner'
      WHEN t.member_count = 0
      AND t.commits_before > 2
      AND t.moved > 10 * GREATEST(t.longest_step, 1)
      THEN 'jumped far ahead'
    END AS finding
  FROM told AS t
  LEFT JOIN owned AS o
    ON o.log_id = t.log_id
    AND o.offsets_partition = t.offsets_partition
    AND o.record_offset = t.record_offset
), found AS (
  /* Records that were left of a truncated log are in the next log, too. */
  SELECT
    j.*,
    ROW_NUMBER() OVER (
      PARTITION BY offsets_partition, record_offset, record_timestamp
      ORDER BY log_id DESC
    ) AS nth
  FROM judged AS j
  WHERE
    NOT finding IS NULL
), ends AS (
  SELECT
    j.log_id,
    j.offsets_partition,
    j.record_offset,
    e.log_start_offset,
    e.high_watermark,
    e.held_until,
    e.known_until,
    e.next_sampled_at,
    e.next_offset,
    e.next_log_start_offset,
    j.moved >= 0 OR COALESCE(j.is_other_topic, FALSE) AS is_forward,
    ROW_NUMBER() OVER (
      PARTITION BY j.log_id, j.offsets_partition, j.record_offset
      ORDER BY e.sampled_at DESC, COALESCE(e.topic_id, '') NULLS FIRST
    ) AS nth
  FROM found AS j
  JOIN end_intervals AS e
    ON e.topic = j.topic
    AND e.partition = j.partition
    AND (
      j.topic_id IS NULL OR e.topic_id IS NULL OR e.topic_id = j.topic_id
    )
    AND e.sampled_at <= j.record_timestamp
    AND (
      e.next_sampled_at IS NULL OR e.next_sampled_at > j.record_timestamp
    )
  WHERE
    j.nth = 1
)
SELECT
  j.record_timestamp,
  j.group_id,
  j.topic,
  j.partition,
  j.previous_offset,
  j.committed_offset,
  j.moved,
  j.finding,
  CASE
    WHEN j.committed_offset = e.log_start_offset
    AND (
      j.record_timestamp <= e.held_until
      OR e.next_log_start_offset = e.log_start_offset
    )
    THEN 'the start of the log (like --to-earliest)'
    WHEN j.committed_offset = e.high_watermark
    AND (
      e.next_offset = e.high_watermark
      OR (
        e.is_forward AND j.record_timestamp <= e.held_until
      )
    )
    THEN 'the end of the log (like --to-latest)'
    WHEN e.is_forward
    AND j.committed_offset BETWEEN e.high_watermark AND e.next_offset
    AND e.next_sampled_at <= e.held_until + INTERVAL '2' MINUTE
    THEN 'within two minutes of the end of the log'
  END AS moved_to, /* No sample has exactly that time. A group that moved back had read further: a lower sample is older than the messages written since. */
  j.group_state,
  j.member_count,
  j.group_epoch,
  j.owner_client_id,
  j.owner_host,
  CASE WHEN j.record_timestamp <= e.known_until THEN e.log_start_offset END AS log_start_offset,
  CASE WHEN j.record_timestamp <= e.known_until THEN e.high_watermark END AS high_watermark,
  j.partitions_at_once,
  j.metadata,
  j.log_id,
  j.offsets_partition,
  j.record_offset
FROM found AS j
LEFT JOIN ends AS e
  ON e.log_id = j.log_id
  AND e.offsets_partition = j.offsets_partition
  AND e.record_offset = j.record_offset
  AND e.nth = 1
WHERE
  j.nth = 1
