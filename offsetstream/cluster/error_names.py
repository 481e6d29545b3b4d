"""Kafka's names of errors (org.apache.kafka.common.protocol.Errors), which differ from librdkafka's names."""

from __future__ import annotations

from confluent_kafka import KafkaError

# The coordinator is moving, loading, or not yet available: retry.
COORDINATOR_MOVES = frozenset({"NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"})
_NAMES = {
    -1: "UNKNOWN_SERVER_ERROR",
    0: "NONE",
    2: "CORRUPT_MESSAGE",
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    4: "INVALID_FETCH_SIZE",
    6: "NOT_LEADER_OR_FOLLOWER",
    10: "MESSAGE_TOO_LARGE",
    11: "STALE_CONTROLLER_EPOCH",
    17: "INVALID_TOPIC_EXCEPTION",
    98: "SNAPSHOT_NOT_FOUND",
    99: "POSITION_OUT_OF_RANGE",
    101: "DUPLICATE_BROKER_REGISTRATION",
    102: "BROKER_ID_NOT_REGISTERED",
    104: "INCONSISTENT_CLUSTER_ID",
    105: "TRANSACTIONAL_ID_NOT_FOUND",
    106: "FETCH_SESSION_TOPIC_ID_ERROR",
    107: "INELIGIBLE_REPLICA",
    108: "NEW_LEADER_ELECTED",
    109: "OFFSET_MOVED_TO_TIERED_STORAGE",
    # librdkafka's own errors, which no broker sent.
    KafkaError._UNKNOWN_TOPIC: "UNKNOWN_TOPIC_OR_PARTITION",
    KafkaError._UNKNOWN_PARTITION: "UNKNOWN_TOPIC_OR_PARTITION",
    KafkaError._TIMED_OUT: "REQUEST_TIMED_OUT",
    KafkaError._TIMED_OUT_QUEUE: "REQUEST_TIMED_OUT",
    KafkaError._TRANSPORT: "NETWORK_EXCEPTION",
}


def kafka_name(error: KafkaError) -> str:
    """Return Kafka's name of the error, or librdkafka's name of one that Kafka does not have."""
    return _NAMES.get(error.code()) or str(error.name()).lstrip("_")
