-- The same for the decoded history. In older tables it is filled later.
undecoded AS (
  SELECT p.offsets_partition, p.history_complete_from AS unknown_before,
         CASE WHEN p.history_complete_from <= :at THEN 'the decoded history is not filled: run maintain --fill-history'
              ELSE 'the history is complete from unknown_before on only' END AS unknown_reason
  FROM offsets_partitions AS p
  LEFT JOIN decoded_logs AS d ON d.offsets_partition = p.offsets_partition AND d.log_id = p.log_id
  WHERE p.history_complete_from IS NULL OR p.history_complete_from > :at OR d.decoded_from_offset IS NULL OR d.decoded_from_offset > 0
), undecoded_groups AS (
  SELECT u.offsets_partition, CAST(NULL AS STRING) AS group_id, u.unknown_before, u.unknown_reason FROM undecoded AS u
  UNION ALL
  SELECT DISTINCT u.offsets_partition, c.group_id, u.unknown_before, u.unknown_reason
  FROM undecoded AS u
  JOIN (SELECT offsets_partition, group_id FROM offset_commits UNION SELECT offsets_partition, group_id FROM group_records) AS c
    ON c.offsets_partition = u.offsets_partition
)
