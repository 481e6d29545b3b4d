-- Databricks notebook source
-- MAGIC %md
-- MAGIC # First queries on Kafka's consumer groups
-- MAGIC
-- MAGIC Fill in the widget `schema_name` with catalog and schema, such as `lake.kafka_offsets`, and `group_id` with a group.
-- MAGIC Every column is described in Catalog Explorer; timestamps are in UTC.

-- COMMAND ----------

CREATE WIDGET TEXT schema_name DEFAULT 'main.kafka_offsets';
CREATE WIDGET TEXT group_id DEFAULT 'billing';

-- COMMAND ----------

USE IDENTIFIER(:schema_name)

-- COMMAND ----------

-- MAGIC %md ## Now: what the group coordinators hold

-- COMMAND ----------

-- The groups by type and state; is_simple: no member ever joined, there are committed offsets only.
SELECT group_type, state, is_simple, count(*) AS number_of_groups
FROM groups
WHERE in_coordinator_partition
GROUP BY ALL
ORDER BY ALL

-- COMMAND ----------

-- The committed offsets of a group, and whose member has the partition.
SELECT o.topic, o.partition, o.committed_offset, o.commit_timestamp, a.member_id
FROM committed_offsets o
LEFT JOIN member_assignments a
  ON a.group_id = o.group_id AND a.topic = o.topic AND a.partition = o.partition AND a.kind = 'assigned'
WHERE o.in_coordinator_partition AND o.group_id = :group_id
ORDER BY o.topic, o.partition

-- COMMAND ----------

-- The members of a group.
SELECT member_id, group_instance_id, client_id, client_host, member_state, session_timeout_ms
FROM group_members
WHERE in_coordinator_partition AND group_id = :group_id
ORDER BY member_id

-- COMMAND ----------

-- Committed offsets that nobody has touched for a week.
SELECT group_id, topic, count(*) AS partitions, max(commit_timestamp) AS last_commit
FROM committed_offsets
WHERE in_coordinator_partition
GROUP BY group_id, topic
HAVING max(commit_timestamp) < now() - INTERVAL 7 DAYS
ORDER BY last_commit

-- COMMAND ----------

-- MAGIC %md ## What happened: the history

-- COMMAND ----------

-- Who commits most: each commit is a record of the topic that all brokers keep.
SELECT group_id, count(*) AS commits, count(DISTINCT topic, partition) AS partitions, max(record_timestamp) AS last_commit
FROM offset_commits
WHERE NOT is_tombstone AND written_day >= current_date() - INTERVAL 1 DAY
GROUP BY group_id
ORDER BY commits DESC
LIMIT 20

-- COMMAND ----------

-- Commits per minute in the last hour.
SELECT date_trunc('MINUTE', record_timestamp) AS minute, count(*) AS commits
FROM offset_commits
WHERE NOT is_tombstone
  AND written_day >= current_date() - INTERVAL 1 DAY
  AND record_timestamp >= now() - INTERVAL 1 HOUR
GROUP BY ALL
ORDER BY minute

-- COMMAND ----------

-- Where a group stood an hour ago: the last record of each partition until then, unless it deleted the offset.
SELECT topic, partition, last.committed_offset, last.record_timestamp
FROM (
  SELECT
    topic,
    partition,
    max_by(struct(committed_offset, record_timestamp, is_tombstone), struct(log_id, record_offset)) AS last
  FROM offset_commits
  WHERE group_id = :group_id AND record_timestamp <= now() - INTERVAL 1 HOUR
  GROUP BY topic, partition
)
WHERE NOT last.is_tombstone
ORDER BY topic, partition

-- COMMAND ----------

-- The rebalances of classic groups today: each is a record of the group with a new generation.
SELECT group_id, count(DISTINCT get_json_object(value_json, '$.data.generation')) AS generations
FROM group_records
WHERE key_type = 2 AND NOT is_tombstone AND written_day = current_date()
GROUP BY group_id
ORDER BY generations DESC
LIMIT 20

-- COMMAND ----------

-- MAGIC %md ## Is it all there?

-- COMMAND ----------

-- How far each offsets partition is applied, and since when its history lacks nothing.
SELECT
  offsets_partition,
  load_state,
  next_offset,
  last_stable_offset - next_offset AS records_behind,
  caught_up_at,
  history_complete_from
FROM offsets_partitions
ORDER BY records_behind DESC, offsets_partition

-- COMMAND ----------

-- What no Kafka could have written.
SELECT reason, count(*) AS records, max(record_timestamp) AS last
FROM undecodable_records
GROUP BY reason
ORDER BY records DESC
