"""When a committed offset expires (reference 4.11, 5.6, KIP-211): pure functions over milliseconds since 1970."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias


class Commit(Protocol):
    """What expiry needs to know of a commit; an expiry of its own comes from clients that asked for one."""

    @property
    def commit_timestamp_ms(self) -> int:
        """When it was committed."""

    @property
    def expire_timestamp_ms(self) -> int | None:
        """When it expires, if its client said so."""


ExpirationBase: TypeAlias = Callable[[Commit], int]
"""From a commit to the instant at which it begins to age: its commit, or since when its group is Empty."""


def since_commit(commit: Commit) -> int:
    """Return when the commit was made: the base of all but Empty groups that once had members."""
    return commit.commit_timestamp_ms


def expires_at_ms(commit: Commit, base_ms: int, retention_ms: int) -> int:
    """Return the first instant at which the commit is expired, given where its age begins."""
    return base_ms + retention_ms if commit.expire_timestamp_ms is None else commit.expire_timestamp_ms


def is_expired(commit: Commit, base_ms: int, now_ms: int, retention_ms: int) -> bool:
    """Whether the commit is expired; the instant itself counts (OffsetExpirationConditionImpl)."""
    return now_ms >= expires_at_ms(commit, base_ms, retention_ms)
