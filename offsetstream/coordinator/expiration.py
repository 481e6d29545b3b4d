"""When a committed offset expires (reference 4.11, 5.6, KIP-211). Times are milliseconds since 1970."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias


class Commit(Protocol):
    """What expiration needs of a commit. Only a commit whose client asked for it has an expiry of its own."""

    @property
    def commit_timestamp_ms(self) -> int:
        """When it was committed."""

    @property
    def expire_timestamp_ms(self) -> int | None:
        """When it expires, if its client set this."""


ExpirationBase: TypeAlias = Callable[[Commit], int]
"""From a commit to the time from which its retention counts: its commit, or when its group became Empty."""


def since_commit(commit: Commit) -> int:
    """Return the commit's time. It is the base for all groups but Empty ones that once had members."""
    return commit.commit_timestamp_ms


def expires_at_ms(commit: Commit, base_ms: int, retention_ms: int) -> int:
    """Return the first time at which the commit is expired. `base_ms` is where its retention starts."""
    return base_ms + retention_ms if commit.expire_timestamp_ms is None else commit.expire_timestamp_ms


def is_expired(commit: Commit, base_ms: int, now_ms: int, retention_ms: int) -> bool:
    """Whether the commit is expired. At its expiry time it is (OffsetExpirationConditionImpl)."""
    return now_ms >= expires_at_ms(commit, base_ms, retention_ms)
