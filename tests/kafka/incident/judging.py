"""Each group's status by Burrow's rules, from the book. If it depends on timing, all statuses that are possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from offsetstream.views.verdicts import WORDS
from testkit.field_rules import Commit as Seen
from testkit.field_rules import Limits, burrow_status
from tests.kafka.incident.answers import Answers
from tests.kafka.incident.book import Book, Cell, Commit

Outcome = tuple[str, str | None, str]  # Burrow's status for the group, for its worst partition, our verdict
_RING, _RING_MS, _WINDOW_MS = 10, 90_000, 300_000
_SLACK_MS = 60_000  # maximum age of the last sample
_SAMPLE_AGE_MS = 12_000  # ends are sampled every ten seconds
_LEVELS = ("OK", "WARN", "STOP", "STALL", "REWIND")
_VERDICT_OF_STATUS = {"STOP": "stopped", "STALL": "stalled", "REWIND": "rewound"}
_GROUP_STATUS = {"OK": "OK", "WARN": "WARN"}


def outcomes(book: Book, answers: Answers, now_ms: int) -> dict[str, list[Outcome]]:
    """Return the possible outcomes of each group, usually one, as of the job's last sample."""
    return {
        group: sorted(
            {
                each
                for at_ms in (now_ms - _SAMPLE_AGE_MS, now_ms)
                for each in _group_outcomes(book, answers, at_ms, group)
            }
        )
        for group in answers.groups
    }


def _group_outcomes(book: Book, answers: Answers, now_ms: int, group: str) -> set[Outcome]:
    if group in book.statuses:
        return {book.statuses[group]}
    cells = answers.offsets_of(group)
    if not cells:
        return {("NOTFOUND", None, "unknown")}
    worst = {(0, 0)}
    for cell in cells:
        outcomes_of_cell = {(_LEVELS.index(s), WORDS.index(v)) for s, v in _cell_outcomes(book, answers, now_ms, cell)}
        worst = {(max(left[0], right[0]), max(left[1], right[1])) for left, right in product(worst, outcomes_of_cell)}
    return {(_GROUP_STATUS.get(_LEVELS[s], "ERR"), _LEVELS[s], WORDS[v]) for s, v in worst}


def _cell_outcomes(book: Book, answers: Answers, now_ms: int, cell: Cell) -> set[tuple[str, str]]:
    end = answers.ends[cell.topic, cell.partition][2]
    if end <= answers.offsets[cell]:
        return {("OK", "ok")}
    commits = _commits_since_deletion(book, cell)
    assert commits[-1].offset == answers.offsets[cell]
    window = commits[-_RING:]
    found: set[tuple[str, str]] = set()
    for lags in product(*(_lags(book, commit, end) for commit in window)):
        for times, ring in product(_times(window), _rings(book, cell, end, now_ms)):
            commits_seen = [Seen(c.offset or 0, at, lag) for c, at, lag in zip(window, times, lags, strict=True)]
            status, _ = burrow_status(commits_seen, ring, now_ms, Limits())
            members = answers.groups[cell.group]["member_count"]
            found |= {(status, verdict) for verdict in _verdicts(status, commits, members, now_ms)}
    return found


def _commits_since_deletion(book: Book, cell: Cell) -> list[Commit]:
    """Return the commits since the last deletion."""
    commits = [commit for commit in book.commits if commit.cell == cell]
    deleted = [at for at, commit in enumerate(commits) if commit.offset is None]
    return commits[deleted[-1] + 1 if deleted else 0 :]


def _times(commits: Sequence[Commit]) -> Iterator[list[int]]:
    """Yield the commit times with the largest and the smallest possible distance."""
    for first, last in (("since_ms", "until_ms"), ("until_ms", "since_ms")):
        times = [getattr(commit, last) for commit in commits]
        yield [getattr(commits[0], first), *times[1:]] if len(commits) > 1 else times


def _lags(book: Book, commit: Commit, end: int) -> set[int | None]:
    """Return the possible lags at the commit: by the current end offset, an earlier one, or None without a sample."""
    place, offset = commit.cell[1:], commit.offset or 0
    found: set[int | None] = {max(0, end - offset)}
    if commit.since_ms < book.sampled_since_ms[place]:
        found |= {None, *(max(0, earlier - offset) for earlier in book.ends[place][:-1])}
    return found


def _rings(book: Book, cell: Cell, end: int, now_ms: int) -> Iterator[list[int]]:
    """Yield the possible end offsets of the last samples, with earlier ones if they may still be among them."""
    yield [end]
    place = cell[1:]
    if book.sampled_since_ms[place] > now_ms - _RING_MS - _SLACK_MS:
        yield from ([earlier, end] for earlier in book.ends[place][:-1])


def _verdicts(status: str, commits: Sequence[Commit], members: int, now_ms: int) -> set[str]:
    last, is_empty = commits[-1], not members
    if is_empty and now_ms - last.until_ms > _WINDOW_MS + 1000:  # Burrow counts whole seconds
        return {"dead"}
    found = {"dead"} if is_empty and now_ms - last.since_ms > _WINDOW_MS else set()
    patience_ms = _WINDOW_MS if len(commits) == 1 else 60_000
    if status == "STOP" and len(commits) < _RING and now_ms - last.until_ms <= patience_ms + 1000:
        found |= {"unknown"}  # too few commits to decide
        if now_ms - last.since_ms <= patience_ms:
            return found
    if status in _VERDICT_OF_STATUS:
        return found | {_VERDICT_OF_STATUS[status]}
    has_earlier_commits = commits[0].since_ms <= now_ms - _WINDOW_MS
    return found | {"ok"} | ({"falling behind", "catching up"} if has_earlier_commits else set())
