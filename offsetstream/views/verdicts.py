"""The verdicts on a group's partitions, declared once for the views, commands, report, metrics and docs.

Spark, DuckDB and BI join them as the view `verdicts`, whose text is made here.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Level = Literal["OK", "UNKNOWN", "WARN", "ERR"]
# Value of each level in metrics: alerts use 2 and higher. UNKNOWN raises no alert.
METRIC_OF: dict[Level, int] = {"OK": 0, "UNKNOWN": 1, "WARN": 2, "ERR": 3}
NOT_WELL = ("WARN", "ERR")
NOT_LOOKED = "the job has not checked"  # a cause in the views; it replaces the reasons of its groups


class Verdict(NamedTuple):
    """A verdict: its name, severity and meaning."""

    word: str
    level: Level
    meaning: str


# Ordered by rank, the worst last: a group has the worst verdict of its partitions. Unknown ranks above OK and below
# every known problem.
VERDICTS = (
    Verdict("ok", "OK", "No message waits, or the group keeps up with the producers"),
    Verdict("catching up", "OK", "The lag falls"),
    Verdict("unknown", "UNKNOWN", "The tables lack the data to judge; the reason names what is missing"),
    Verdict("abandoned", "WARN", "Messages wait in a topic that no member of the live group subscribes to any more"),
    Verdict("waiting", "WARN", "All is read up to a transaction that has been open for at least a minute"),
    Verdict(
        "blocked",
        "WARN",
        "An open transaction has blocked the offsets partition for at least a minute, so newer commits are not visible",
    ),
    Verdict("unstable", "WARN", "Six or more rebalances in five minutes, with a client that comes and goes"),
    Verdict("beyond the end", "WARN", "The committed offset is beyond the end of the log, so the client will reset it"),
    Verdict(
        "falling behind",
        "WARN",
        "The lag rose within window_seconds, and the group did not catch up in between",
    ),
    Verdict("late", "WARN", "Messages have waited for longer than max_time_lag_seconds"),
    Verdict("stalled", "ERR", "The group keeps committing the same offset while messages wait"),
    Verdict("stopped", "ERR", "Messages wait, and the time since the last commit exceeds the span of the last commits"),
    Verdict("rewound", "ERR", "The group committed a lower offset and has not reached its previous offset again"),
    Verdict("dead", "ERR", "Messages wait, the group has no members, and it has not committed for window_seconds"),
)
WORDS = tuple(each.word for each in VERDICTS)


VERDICTS_FILE = "verdicts.sql"
_SQL = """-- One row per verdict: its severity and meaning.
--
--   verdict STRING: The verdict
--   level STRING: Severity: OK, UNKNOWN, WARN or ERR
--   rank INT: Order of severity, the worst is the highest: a group has the worst verdict of its partitions
--   metric_value INT: Value of the level in metrics: 0 OK, 1 UNKNOWN, 2 WARN, 3 ERR
--   meaning STRING: Meaning of the verdict
SELECT verdict, level, rank, metric_value, meaning FROM (VALUES
{rows}
) AS v (verdict, level, rank, metric_value, meaning)
"""


def verdicts_sql() -> str:
    """Return the text of the view: these rows with rank and metric value."""
    rows = (
        f"  ('{each.word}', '{each.level}', {rank}, {METRIC_OF[each.level]}, '{each.meaning}')"
        for rank, each in enumerate(VERDICTS)
    )
    return _SQL.format(rows=",\n".join(rows))
