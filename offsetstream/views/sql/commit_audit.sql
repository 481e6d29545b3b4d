-- One row per suspicious commit: it moved back, it started elsewhere after its offset had been deleted, it was made while the group had no
-- members, or it did not come from the owner of the partition. Records are compared in log order, so clocks do not matter.
--
--   record_timestamp TIMESTAMP: Time of the record
--   group_id STRING: Group id
--   topic STRING: Topic
--   partition INT: Partition of the topic
--   previous_offset BIGINT: Committed offset before
--   committed_offset BIGINT: Committed offset after
--   moved BIGINT: Messages between the two offsets
--   finding STRING: Why the commit is suspicious
--   moved_to STRING: Start or end of the log, if the samples before and after agree that the commit moved there; or near its end; else null
--   group_state STRING: State of the group at that record
--   member_count INT: Number of members at that record
--   group_epoch INT: Generation or epoch at that record
--   owner_client_id STRING: Client id of the member that owned the partition at that record
--   owner_host STRING: Host of that member
--   log_start_offset BIGINT: Start of the topic's log at the last sample before; null if that sample is too old
--   high_watermark BIGINT: End of the topic's log at the last sample before; null if that sample is too old
--   partitions_at_once BIGINT: Number of offsets that the group committed at the same time
--   metadata STRING: Metadata text committed with the offset
--   log_id INT: Log of the offsets partition
--   offsets_partition INT: Offsets partition of the group
--   record_offset BIGINT: Offset of the record
WITH steps AS (
  SELECT log_id, offsets_partition, group_id, topic, partition, record_offset, record_timestamp, is_tombstone, committed_offset, topic_id, metadata,
         leader_epoch,
         lag(is_tombstone) OVER (PARTITION BY log_id, offsets_partition, group_id, topic, partition ORDER BY record_offset NULLS FIRST) AS after_tombstone,
         last_value(committed_offset) IGNORE NULLS OVER (PARTITION BY log_id, offsets_partition, group_id, topic, partition
           ORDER BY record_offset NULLS FIRST ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS previous_offset,
         last_value(topic_id) IGNORE NULLS OVER (PARTITION BY log_id, offsets_partition, group_id, topic, partition
           ORDER BY record_offset NULLS FIRST ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS previous_topic_id,
         count(committed_offset) OVER (PARTITION BY log_id, offsets_partition, group_id, topic, partition
           ORDER BY record_offset NULLS FIRST ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS commits_before,
         count(*) OVER (PARTITION BY log_id, offsets_partition, group_id, record_timestamp) AS partitions_at_once
  FROM offset_commits
), habits AS (
  SELECT s.*, committed_offset - previous_offset AS moved,
         max(committed_offset - previous_offset) OVER (PARTITION BY log_id, offsets_partition, group_id, topic, partition
           ORDER BY record_offset NULLS FIRST ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS longest_step
  FROM steps AS s
), told AS (
  SELECT h.*, h.topic_id <> h.previous_topic_id AS is_other_topic, coalesce(h.after_tombstone, false) AS is_again, x.group_state, x.member_count,
         x.group_epoch, x.has_owners
  FROM habits AS h
  JOIN commit_context AS x ON x.log_id = h.log_id AND x.offsets_partition = h.offsets_partition AND x.record_offset = h.record_offset
  WHERE NOT h.is_tombstone
), owned AS (
  -- A cooperative member that gives up a partition in this generation commits it once more before another member gets it.
  SELECT t.log_id, t.offsets_partition, t.record_offset,
         coalesce(min(CASE WHEN a.to_record_offset IS NULL OR a.to_record_offset > t.record_offset THEN a.member_id END), min(a.member_id)) AS member_id,
         coalesce(min(CASE WHEN a.to_record_offset IS NULL OR a.to_record_offset > t.record_offset THEN a.client_id END), min(a.client_id)) AS client_id,
         coalesce(min(CASE WHEN a.to_record_offset IS NULL OR a.to_record_offset > t.record_offset THEN a.client_host END), min(a.client_host)) AS client_host
  FROM told AS t
  JOIN assignment_intervals AS a
    ON a.offsets_partition = t.offsets_partition AND a.log_id = t.log_id AND a.group_id = t.group_id AND a.topic = t.topic
   AND a.partition = t.partition AND a.kind IN ('assigned', 'pending_revocation')
   AND a.from_record_offset < t.record_offset
   AND (a.to_record_offset IS NULL OR a.to_record_offset > t.record_offset OR (a.revoked_in_epoch = t.group_epoch AND t.member_count > 0))
  GROUP BY t.log_id, t.offsets_partition, t.record_offset
), judged AS (
  SELECT t.*, o.member_id AS owner_member_id, o.client_id AS owner_client_id, o.client_host AS owner_host,
         CASE
           WHEN t.is_other_topic THEN 'the topic was recreated'
           WHEN t.is_again AND t.moved < 0 THEN 'read again: its offset had been deleted'
           WHEN t.is_again AND t.moved > 0 THEN 'skipped ahead: its offset had been deleted'
           WHEN t.moved < 0 AND t.member_count = 0 THEN 'moved back while the group had no members'
           WHEN t.moved < 0 AND t.has_owners AND o.member_id IS NULL THEN 'moved back by a client that is not the owner'
           WHEN t.moved < 0 AND o.member_id IS NOT NULL THEN 'moved back by its owner'
           WHEN t.moved < 0 THEN 'moved back'
           WHEN t.moved > 0 AND t.member_count = 0 AND t.group_epoch > 0 THEN 'moved forward while the group had no members'
           WHEN t.moved = 0 AND t.member_count = 0 AND t.group_epoch > 0 THEN 'committed while the group had no members'
           WHEN t.member_count > 0 AND t.has_owners AND o.member_id IS NULL THEN 'committed by a client that is not the owner'
           WHEN t.member_count = 0 AND t.commits_before > 2 AND t.moved > 10 * greatest(t.longest_step, 1) THEN 'jumped far ahead'
         END AS finding
  FROM told AS t
  LEFT JOIN owned AS o ON o.log_id = t.log_id AND o.offsets_partition = t.offsets_partition AND o.record_offset = t.record_offset
), found AS (
  -- Records that were left of a truncated log are in the next log, too.
  SELECT j.*, row_number() OVER (PARTITION BY offsets_partition, record_offset, record_timestamp ORDER BY log_id DESC) AS nth
  FROM judged AS j WHERE finding IS NOT NULL
), ends AS (
  SELECT j.log_id, j.offsets_partition, j.record_offset, e.log_start_offset, e.high_watermark, e.held_until, e.known_until,
         e.next_sampled_at, e.next_offset, e.next_log_start_offset, j.moved >= 0 OR coalesce(j.is_other_topic, false) AS is_forward,
         row_number() OVER (PARTITION BY j.log_id, j.offsets_partition, j.record_offset ORDER BY e.sampled_at DESC, coalesce(e.topic_id, '') NULLS FIRST) AS nth
  FROM found AS j
  JOIN end_intervals AS e
    ON e.topic = j.topic AND e.partition = j.partition AND (j.topic_id IS NULL OR e.topic_id IS NULL OR e.topic_id = j.topic_id)
   AND e.sampled_at <= j.record_timestamp AND (e.next_sampled_at IS NULL OR e.next_sampled_at > j.record_timestamp)
  WHERE j.nth = 1
)
SELECT j.record_timestamp, j.group_id, j.topic, j.partition, j.previous_offset, j.committed_offset, j.moved, j.finding,
       -- No sample has exactly that time. A group that moved back had read further: a lower sample is older than the messages written since.
       CASE WHEN j.committed_offset = e.log_start_offset AND (j.record_timestamp <= e.held_until OR e.next_log_start_offset = e.log_start_offset)
              THEN 'the start of the log (like --to-earliest)'
            WHEN j.committed_offset = e.high_watermark AND (e.next_offset = e.high_watermark OR (e.is_forward AND j.record_timestamp <= e.held_until))
              THEN 'the end of the log (like --to-latest)'
            WHEN e.is_forward AND j.committed_offset BETWEEN e.high_watermark AND e.next_offset
                 AND e.next_sampled_at <= e.held_until + INTERVAL '2' MINUTE THEN 'within two minutes of the end of the log' END AS moved_to,
       j.group_state, j.member_count, j.group_epoch, j.owner_client_id, j.owner_host,
       CASE WHEN j.record_timestamp <= e.known_until THEN e.log_start_offset END AS log_start_offset,
       CASE WHEN j.record_timestamp <= e.known_until THEN e.high_watermark END AS high_watermark, j.partitions_at_once,
       j.metadata, j.log_id, j.offsets_partition, j.record_offset
FROM found AS j
LEFT JOIN ends AS e ON e.log_id = j.log_id AND e.offsets_partition = j.offsets_partition AND e.record_offset = j.record_offset AND e.nth = 1
WHERE j.nth = 1
