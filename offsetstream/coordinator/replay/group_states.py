"""The states of groups, in the words of Kafka's Admin, and which may follow which."""

from __future__ import annotations

from enum import StrEnum


class GroupState(StrEnum):
    """Every state that Kafka's Admin has a word for; which of them a group can be in depends on its type."""

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
"""From which states a classic group may come into each of its states (reference 9.2)."""
