"""The verdicts on a group's partitions, declared once for the views, commands, report, metrics and docs.

`make docs` writes `sql/verdicts.sql` from this table, so that Spark, DuckDB and BI join it as the view `verdicts`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Level = Literal["OK", "UNKNOWN", "WARN", "ERR"]
# What metrics have for a level: an alert asks for 2 and more. Unknown is no trouble that is known.
METRIC_OF: dict[Level, int] = {"OK": 0, "UNKNOWN": 1, "WARN": 2, "ERR": 3}
NOT_WELL = ("WARN", "ERR")
NOT_LOOKED = "the job has not looked"  # a cause of the views, which says all that the reasons of its groups say


class Verdict(NamedTuple):
    """A verdict: its word, how grave it is, and what it means."""

    word: str
    level: Level
    meaning: str


# In the order of their rank, the worst last: a group has the worst of its partitions. What is unknown hides no trouble
# that is known, and is not hidden by what is well.
VERDICTS = (
    Verdict("ok", "OK", "Nothing waits, or the group keeps up with what is written"),
    Verdict("catching up", "OK", "The lag falls"),
    Verdict("unknown", "UNKNOWN", "The tables cannot tell: the reason says what they lack"),
    Verdict("abandoned", "WARN", "Messages wait in a topic that no member of the live group subscribes to any more"),
    Verdict("waiting", "WARN", "All is read but what lies behind a transaction that is open for a minute or longer"),
    Verdict(
        "blocked",
        "WARN",
        "An open transaction has blocked the offsets partition for a minute: what the group did since is unreadable",
    ),
    Verdict("unstable", "WARN", "Six rebalances and more in five minutes, with a client that comes and goes"),
    Verdict("beyond the end", "WARN", "The committed offset is beyond the end of the log: the client will start anew"),
    Verdict(
        "falling behind",
        "WARN",
        "The lag rose in window_seconds, and the group was never caught up in between",
    ),
    Verdict("late", "WARN", "Messages wait for longer than max_time_lag_seconds"),
    Verdict("stalled", "ERR", "The group commits, but always the same offset, and messages wait"),
    Verdict("stopped", "ERR", "Messages wait, and the last commit is older than all the last commits took together"),
    Verdict("rewound", "ERR", "The group committed a lower offset, and has not come back to where it was"),
    Verdict("dead", "ERR", "Messages wait, and a group without members committed nothing for window_seconds"),
)
WORDS = tuple(each.word for each in VERDICTS)


_SQL = """-- One row per verdict: how grave it is, and what it means. Made by `make docs` from views/verdicts.py.
--
--   verdict STRING: The word
--   level STRING: OK, UNKNOWN, WARN or ERR
--   rank INT: Place among the verdicts, the worst last: a group has the worst of its partitions
--   metric_value INT: What metrics have for the level: 0 OK, 1 UNKNOWN, 2 WARN, 3 ERR
--   meaning STRING: What it means
SELECT verdict, level, rank, metric_value, meaning FROM (VALUES
{rows}
) AS v (verdict, level, rank, metric_value, meaning)
"""


def verdicts_sql() -> str:
    """Return the file of the view `verdicts`: these rows, with rank and metric value."""
    rows = (
        f"  ('{each.word}', '{each.level}', {rank}, {METRIC_OF[each.level]}, '{each.meaning}')"
        for rank, each in enumerate(VERDICTS)
    )
    return _SQL.format(rows=",\n".join(rows))
