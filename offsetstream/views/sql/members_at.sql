-- Every group member at an instant (:at). Where the history does not reach back that far, rows with unknown_reason replace the members. An
-- open transaction at that time blocks the records after it in its offsets partition, as it did in the tables. This includes commits of
-- other groups that the coordinator had already applied.
--
--   offsets_partition INT: Offsets partition of the group
--   group_id STRING: Group id; null in a row that marks a complete offsets partition as unknown
--   member_id STRING: Member id
--   group_instance_id STRING: Instance id of a static member
--   client_id STRING: Client id
--   client_host STRING: Client host
--   rack_id STRING: Rack of the client
--   session_timeout_ms INT: Session timeout in milliseconds (classic protocol)
--   rebalance_timeout_ms INT: Rebalance timeout in milliseconds
--   member_epoch INT: Epoch of the member
--   previous_member_epoch INT: Previous epoch of the member
--   member_state STRING: State of the member
--   is_classic_protocol BOOLEAN: Whether the member spoke the classic protocol
--   server_assignor STRING: Assignor on the broker that the member requested
--   subscribed_topic_regex STRING: Regular expression that the member subscribed to
--   process_id STRING: Process of a streams member
--   user_endpoint STRING: Endpoint (host:port) of a streams member
--   topology_epoch INT: Epoch of a streams member's topology
--   subscribed_topics STRING: Topics that the member subscribed to, separated by commas
--   record_offset BIGINT: Offset of the record that set this state
--   record_timestamp TIMESTAMP: Timestamp of that record
--   log_id INT: Log of the offsets partition, as in the history
--   unknown_before TIMESTAMP: The history lacks records before this time; null in rows of members
--   unknown_reason STRING: Why the members at that time are unknown; null in rows of members
WITH
-- @include cuts
,
-- @include decoded_cuts
, numbered AS (
  SELECT h.offsets_partition, h.group_id, h.member_id, h.group_instance_id, h.client_id, h.client_host, h.rack_id, h.session_timeout_ms,
         h.rebalance_timeout_ms, h.member_epoch, h.previous_member_epoch, h.member_state, h.is_classic_protocol, h.server_assignor,
         h.subscribed_topic_regex, h.process_id, h.user_endpoint, h.topology_epoch, h.subscribed_topics, h.record_offset, h.record_timestamp,
         h.log_id, h.change,
         row_number() OVER (PARTITION BY h.offsets_partition, h.group_id, h.member_id ORDER BY h.record_offset DESC) AS nth
  FROM member_history AS h
  JOIN cuts AS k ON k.offsets_partition = h.offsets_partition AND k.log_id = h.log_id
  LEFT JOIN undecoded AS u ON u.offsets_partition = h.offsets_partition
  WHERE u.offsets_partition IS NULL AND (k.cut_offset IS NULL OR h.record_offset < k.cut_offset)
)
SELECT offsets_partition, group_id, member_id, group_instance_id, client_id, client_host, rack_id, session_timeout_ms, rebalance_timeout_ms,
       member_epoch, previous_member_epoch, member_state, is_classic_protocol, server_assignor, subscribed_topic_regex, process_id, user_endpoint,
       topology_epoch, subscribed_topics, record_offset, record_timestamp, log_id, CAST(NULL AS TIMESTAMP) AS unknown_before,
       CAST(NULL AS STRING) AS unknown_reason
FROM numbered WHERE nth = 1 AND change <> 'left'
UNION ALL
SELECT offsets_partition, group_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, unknown_before, unknown_reason
FROM undecoded_groups
