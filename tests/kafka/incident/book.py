"""What the script of the incident did, written down as it was seen to have happened: plain values, fit for JSON."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Place = tuple[str, int]  # topic and partition


class Cell(NamedTuple):
    """A committed offset's place."""

    group: str
    topic: str
    partition: int


class Commit(NamedTuple):
    """A commit or, with the offset null, the deletion of one, between two times of this machine's clock."""

    cell: Cell
    offset: int | None
    since_ms: int
    until_ms: int


class Finding(NamedTuple):
    """What `commit_audit` must say of a commit."""

    cell: Cell
    previous: int
    committed: int
    finding: str
    moved_to: str | None


class Deletion(NamedTuple):
    """What `tombstone_reasons` must say."""

    cell: Cell
    last_offset: int
    reason: str


class Passing(NamedTuple):
    """A member came or went."""

    group: str
    client: str
    change: str  # joined or left


class Handover(NamedTuple):
    """A member's partition went to another one, between two times."""

    cell: Cell
    giver: str
    taker: str
    had_ms: int
    taken_ms: int


class Ending(NamedTuple):
    """An offset has had its day since its group's last member left, between two times."""

    cell: Cell
    since_ms: int
    until_ms: int


@dataclass
class Book:
    """Filled by the script; `expected.py` makes of it what each view must say."""

    seed: int
    commits: list[Commit] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    deletions: list[Deletion] = field(default_factory=list)
    passings: list[Passing] = field(default_factory=list)
    coordinators: list[dict[int, tuple[int | None, int | None]]] = field(default_factory=list)  # at each look
    topic_names: dict[str, str] = field(default_factory=dict)  # by id, also of deleted topics
    orphans: dict[Cell, str] = field(default_factory=dict)
    thresholds: list[dict[str, Any]] = field(default_factory=list)
    statuses: dict[str, tuple[str, str, str]] = field(default_factory=dict)  # Burrow's, of the worst cell, our verdict
    steady: list[str] = field(default_factory=list)  # groups whose status never changed
    handovers: list[Handover] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    ends: dict[Place, list[int]] = field(
        default_factory=dict
    )  # of logs, as the job may have sampled them; the last is now
    seen: dict[Place, int] = field(default_factory=dict)  # since when the job surely samples that last one
    lags: dict[Cell, int] = field(default_factory=dict)  # as they were at `lags_ms`
    lags_ms: int = 0
    open_transaction: dict[str, int] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)  # the log that lost its end
    lost: list[Commit] = field(default_factory=list)  # the commits in it
    automatic: set[str] = field(default_factory=set)  # groups that commit by themselves, when they like
    done: list[str] = field(default_factory=list)

    def note(self, cell: Cell, offset: int | None, since_ms: int, until_ms: int) -> None:
        """A commit or a deletion was seen to have happened."""
        self.commits.append(Commit(cell, offset, since_ms, until_ms))

    def lose(self, cells: Collection[Cell]) -> None:
        """The last commits of these cells are gone, and those before stand again."""
        for cell in cells:
            last = next(commit for commit in reversed(self.commits) if commit.cell == cell)
            self.commits.remove(last)
            self.lost.append(last)

    def standing(self) -> dict[Cell, int]:
        """The offsets that stand, by what was noted."""
        found: dict[Cell, int] = {}
        for commit in self.commits:
            found.pop(commit.cell, None)
            if commit.offset is not None:
                found[commit.cell] = commit.offset
        return found
