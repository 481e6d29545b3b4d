"""The record of what the incident's script did, once the cluster confirmed it: plain values that JSON can hold."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Place = tuple[str, int]  # topic and partition


class Cell(NamedTuple):
    """The key of a committed offset."""

    group: str
    topic: str
    partition: int


class Commit(NamedTuple):
    """A commit or, if the offset is null, a deletion; it happened between two times of this machine's clock."""

    cell: Cell
    offset: int | None
    since_ms: int
    until_ms: int


class Finding(NamedTuple):
    """A row that `commit_audit` must have."""

    cell: Cell
    previous: int
    committed: int
    finding: str
    moved_to: str | None


class Deletion(NamedTuple):
    """A row that `tombstone_reasons` must have."""

    cell: Cell
    last_offset: int
    reason: str


class Passing(NamedTuple):
    """A member joined or left."""

    group: str
    client: str
    change: str  # joined or left


class Handover(NamedTuple):
    """A partition moved from one member to another, between two times."""

    cell: Cell
    giver: str
    taker: str
    had_ms: int
    taken_ms: int


class Ending(NamedTuple):
    """An offset whose retention started when its group's last member left, between two times."""

    cell: Cell
    since_ms: int
    until_ms: int


@dataclass
class Book:
    """What the script did. `expected.py` computes from it the rows that each view must have."""

    seed: int
    commits: list[Commit] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    deletions: list[Deletion] = field(default_factory=list)
    passings: list[Passing] = field(default_factory=list)
    coordinators: list[dict[int, tuple[int | None, int | None]]] = field(default_factory=list)  # at each query
    topic_names: dict[str, str] = field(default_factory=dict)  # by id, also of deleted topics
    orphans: dict[Cell, str] = field(default_factory=dict)
    thresholds: list[dict[str, Any]] = field(default_factory=list)
    # Burrow's status for the group, Burrow's for its worst partition, our verdict
    statuses: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    steady: list[str] = field(default_factory=list)  # groups whose status never changed
    handovers: list[Handover] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    # end offsets that the job may have sampled; the last is the current one
    ends: dict[Place, list[int]] = field(default_factory=dict)
    # when the job had certainly sampled the last of `ends` (ms)
    sampled_since_ms: dict[Place, int] = field(default_factory=dict)
    lags: dict[Cell, int] = field(default_factory=dict)  # as they were at `lags_ms`
    lags_ms: int = 0
    open_transaction: dict[str, int] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)  # the log that lost its end
    lost: list[Commit] = field(default_factory=list)  # the commits that were lost with it
    automatic: set[str] = field(default_factory=set)  # groups that commit at times of their own
    done: list[str] = field(default_factory=list)

    def add_commit(self, cell: Cell, offset: int | None, since_ms: int, until_ms: int) -> None:
        """Record a commit or a deletion that the cluster confirmed."""
        self.commits.append(Commit(cell, offset, since_ms, until_ms))

    def remove_last_commits(self, cells: Collection[Cell]) -> None:
        """Move the last commits of these cells to `lost`; the commits before them are valid again."""
        for cell in cells:
            last = next(commit for commit in reversed(self.commits) if commit.cell == cell)
            self.commits.remove(last)
            self.lost.append(last)

    def current_offsets(self) -> dict[Cell, int]:
        """Return the committed offsets that result from all recorded commits."""
        offsets: dict[Cell, int] = {}
        for commit in self.commits:
            offsets.pop(commit.cell, None)
            if commit.offset is not None:
                offsets[commit.cell] = commit.offset
        return offsets
