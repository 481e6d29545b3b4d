"""Derive the member rows of consumer, share and streams groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from offsetstream.coordinator.cells import Cell, latest
from offsetstream.coordinator.rows import Row, member_row

_UNKNOWN = "UNKNOWN"
# modern/MemberState and streams/MemberState: their numbers differ by one
_STATES = {0: "STABLE", 1: "UNREVOKED_PARTITIONS", 2: "UNRELEASED_PARTITIONS"}
# The pending field that is not empty gives the state.
_STATE_IN_3_7 = {"partitionsPendingRevocation": 1, "partitionsPendingAssignment": 2}
_ONLY_IN_3_7 = "assignors"
_STREAMS_STATES = {1: "STABLE", 2: "UNREVOKED_TASKS", 3: "UNRELEASED_TASKS"}
# Initial values of a member without a record of type 8 or 14 (Kafka's builder); a streams member has none.
_INITIAL = {"member_epoch": 0, "previous_member_epoch": -1, "member_state": "STABLE"}


@dataclass(frozen=True, slots=True)
class MemberCells:
    """A member's records: metadata, target assignment, current assignment. Metadata or current is not None."""

    metadata: Cell | None
    target: Cell | None
    current: Cell | None

    @property
    def latest(self) -> Cell:
        """The record that is the last in the log."""
        return latest(cell for cell in (self.metadata, self.target, self.current) if cell is not None)

    def is_same(self, other: MemberCells) -> bool:
        """Whether the other's records are the same objects."""
        return self.metadata is other.metadata and self.target is other.target and self.current is other.current


def consumer_member(group_id: str, member_id: str, cells: MemberCells) -> Row:
    """Return the row of a consumer group's member (reference 1.4, records 5 and 8)."""
    value = cells.metadata.value if cells.metadata else {}
    classic = _classic_metadata(value)
    return member_row(
        cells.latest,
        **_identity(group_id, member_id, value),
        **_epochs(cells.current, _STATES, _INITIAL),
        rebalance_timeout_ms=value.get("rebalanceTimeoutMs"),
        session_timeout_ms=classic["sessionTimeoutMs"] if classic else None,
        is_classic_protocol=classic is not None,
        server_assignor=value.get("serverAssignor"),
        subscribed_topic_regex=value.get("subscribedTopicRegex"),
    )


def share_member(group_id: str, member_id: str, cells: MemberCells) -> Row:
    """Return the row of a share group's member (reference 1.5, records 10 and 14)."""
    value = cells.metadata.value if cells.metadata else {}
    return member_row(
        cells.latest,
        **_identity(group_id, member_id, value),
        **_epochs(cells.current, _STATES, _INITIAL),
        is_classic_protocol=False,
    )


def streams_member(group_id: str, member_id: str, cells: MemberCells) -> Row:
    """Return the row of a streams group's member (reference 1.6, records 19 and 22)."""
    value = cells.metadata.value if cells.metadata else {}
    endpoint = value.get("userEndpoint")
    return member_row(
        cells.latest,
        **_identity(group_id, member_id, value),
        **_epochs(cells.current, _STREAMS_STATES, {}),
        rebalance_timeout_ms=value.get("rebalanceTimeoutMs"),
        is_classic_protocol=False,
        process_id=value.get("processId"),
        user_endpoint=f"{endpoint['host']}:{endpoint['port']}" if endpoint else None,
        topology_epoch=value.get("topologyEpoch"),
    )


def _identity(group_id: str, member_id: str, value: dict[str, Any]) -> Row:
    return {
        "group_id": group_id,
        "member_id": member_id,
        "group_instance_id": value.get("instanceId"),
        "rack_id": value.get("rackId"),
        "client_id": value.get("clientId"),
        "client_host": value.get("clientHost"),
    }


def _classic_metadata(value: dict[str, Any]) -> dict[str, Any] | None:
    """Return the classic protocol's data of a member; None for a member of the consumer protocol."""
    if not value or _ONLY_IN_3_7 in value:
        return None
    # An absent field has its default, an empty struct: this also means the classic protocol.
    metadata: dict[str, Any] | None = value.get("classicMemberMetadata", {"sessionTimeoutMs": 0})
    return metadata


def _epochs(current: Cell | None, states: dict[int, str], initial: Row) -> Row:
    if current is None:
        return initial
    return {
        "member_epoch": current.value["memberEpoch"],
        "previous_member_epoch": current.value["previousMemberEpoch"],
        "member_state": _state(current.value, states),
    }


def _state(value: dict[str, Any], states: dict[int, str]) -> str:
    if "state" not in value:  # record 8 as 3.7 wrote it (reference 1.4)
        pending = (number for name, number in _STATE_IN_3_7.items() if value[name])
        return states[next(pending, 0)]
    return states.get(value["state"], _UNKNOWN)
