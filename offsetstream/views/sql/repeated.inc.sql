-- Commits that the next log of an offsets partition repeats: the records that were left of the previous log when it was truncated. They
-- count once, in the next log.
repeated AS (
  SELECT DISTINCT h.log_id, h.offsets_partition, h.record_offset
  FROM offset_commits AS h
  JOIN offset_commits AS n
    ON n.offsets_partition = h.offsets_partition AND n.record_offset = h.record_offset AND n.record_timestamp = h.record_timestamp
  WHERE n.log_id > 0 AND n.log_id > h.log_id
)
