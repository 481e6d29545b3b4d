"""The errors that a coordinator returns to clients, by Kafka's names, and how append errors map to them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum, auto


class Errors(StrEnum):
    """The part of Kafka's Errors that a coordinator's cache uses."""

    @staticmethod
    def _generate_next_value_(name: str, *_: object) -> str:
        return name

    NONE = auto()
    CORRUPT_MESSAGE = auto()
    COORDINATOR_LOAD_IN_PROGRESS = auto()
    COORDINATOR_NOT_AVAILABLE = auto()
    GROUP_ID_NOT_FOUND = auto()
    GROUP_SUBSCRIBED_TO_TOPIC = auto()
    INVALID_COMMIT_OFFSET_SIZE = auto()
    INVALID_FETCH_SIZE = auto()
    INVALID_GROUP_ID = auto()
    KAFKA_STORAGE_ERROR = auto()
    MESSAGE_TOO_LARGE = auto()
    NETWORK_EXCEPTION = auto()
    NON_EMPTY_GROUP = auto()
    NOT_COORDINATOR = auto()
    NOT_ENOUGH_REPLICAS = auto()
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = auto()
    NOT_LEADER_OR_FOLLOWER = auto()
    OFFSET_METADATA_TOO_LARGE = auto()
    REBALANCE_IN_PROGRESS = auto()
    RECORD_LIST_TOO_LARGE = auto()
    REQUEST_TIMED_OUT = auto()
    UNKNOWN_SERVER_ERROR = auto()
    UNKNOWN_TOPIC_OR_PARTITION = auto()
    UNSTABLE_OFFSET_COMMIT = auto()
    UNSUPPORTED_FOR_MESSAGE_FORMAT = auto()


_TOO_LARGE = (Errors.MESSAGE_TOO_LARGE, Errors.RECORD_LIST_TOO_LARGE, Errors.INVALID_FETCH_SIZE)
_MOVED = dict.fromkeys((Errors.NOT_LEADER_OR_FOLLOWER, Errors.KAFKA_STORAGE_ERROR), Errors.NOT_COORDINATOR)
_UNAVAILABLE = dict.fromkeys(
    (Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.NOT_ENOUGH_REPLICAS, Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
    Errors.COORDINATOR_NOT_AVAILABLE,
)

# GroupMetadataManager.storeOffsets and storeGroup (3.9); CoordinatorOperationExceptionHelper (4.3.1).
CLASSIC_COMMIT_ERRORS: Mapping[Errors, Errors] = (
    _UNAVAILABLE | _MOVED | dict.fromkeys(_TOO_LARGE, Errors.INVALID_COMMIT_OFFSET_SIZE)
)
CLASSIC_GROUP_ERRORS: Mapping[Errors, Errors] = (
    _UNAVAILABLE
    | _MOVED
    | dict.fromkeys(_TOO_LARGE, Errors.UNKNOWN_SERVER_ERROR)
    | {Errors.REQUEST_TIMED_OUT: Errors.REBALANCE_IN_PROGRESS}
)
NEW_ERRORS: Mapping[Errors, Errors] = (
    dict.fromkeys(
        (Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.NOT_ENOUGH_REPLICAS, Errors.REQUEST_TIMED_OUT),
        Errors.COORDINATOR_NOT_AVAILABLE,
    )
    | _MOVED
    | dict.fromkeys(_TOO_LARGE, Errors.UNKNOWN_SERVER_ERROR)
    | {Errors.NETWORK_EXCEPTION: Errors.COORDINATOR_LOAD_IN_PROGRESS}
)


def to_client_error(append_error: Errors, table: Mapping[Errors, Errors]) -> Errors:
    """Return the client's error for an error of the append. An error that is not in `table` stays as it is."""
    return table.get(append_error, append_error)
