"""The states of groups, named as in Kafka's Admin API, and the allowed transitions."""

from __future__ import annotations

from enum import StrEnum


class GroupState(StrEnum):
    """All group states of Kafka's Admin API. Which of them a group can have depends on its type."""

    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"


_PREPARING, _COMPLETING = GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE
_STABLE, _DEAD, _EMPTY = GroupState.STABLE, GroupState.DEAD, GroupState.EMPTY

CLASSIC_VALID_PREVIOUS_STATES: dict[GroupState, frozenset[GroupState]] = {
    _PREPARING: frozenset({_STABLE, _COMPLETING, _EMPTY}),
    _COMPLETING: frozenset({_PREPARING}),
    _STABLE: frozenset({_COMPLETING}),
    _DEAD: frozenset({_STABLE, _PREPARING, _COMPLETING, _EMPTY, _DEAD}),
    _EMPTY: frozenset({_PREPARING}),
}
"""For each state of a classic group, the states that it may follow (reference 9.2)."""
