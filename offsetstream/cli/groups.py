"""`offsetstream groups list` and `status`: which groups there are, and which have trouble, and why."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import compress

import click

from offsetstream.cli.age import AGE, NOT_OK, STALE
from offsetstream.cli.answers import Answer, Asked, Part, Row, Rows, ends_text, fetch_sorted
from offsetstream.cli.group_state import COPIES_IN_ORDER, Current
from offsetstream.cli.output import Column
from offsetstream.cli.text import counted, waiting_time_text
from offsetstream.views.verdicts import NOT_LOOKED, NOT_WELL, VERDICTS, WORDS

_STATES = ("Empty", "Stable", "Assigning", "Reconciling", "NotReady")
_TYPES = ("Classic", "Consumer", "Share", "Streams")
# Brokers list newer types under a protocol type of the same name.
_NEWER = {each: each.lower() for each in _TYPES if each != "Classic"}
_READ = (
    *("group_id", "group_type", "protocol_type", "member_count", "state", "is_simple"),
    *("offsets_partition", "in_coordinator_partition"),
)


def _listed(asked: Asked) -> Iterator[Part]:
    """Yield the groups that have one of the chosen values of each column; in text only the current copy of each."""
    current, chosen = Current(), {"state": asked.options["state"], "group_type": asked.options["group_type"]}
    for part in asked.reader.tables.parts("groups", _READ, order=COPIES_IN_ORDER):
        asked.saw(part["group_id"])
        wanted = current.of(part) if asked.is_text else [True] * len(part["group_id"])
        for name, values in chosen.items():
            if values:
                wanted = [so_far and value in values for so_far, value in zip(wanted, part[name], strict=True)]
        kept = {name: list(compress(values, wanted)) for name, values in part.items()}
        types = zip(kept["group_type"], kept["protocol_type"], strict=True)
        yield kept | {"protocol_type": [_NEWER.get(group_type, own) for group_type, own in types]}


list_groups = Answer(
    name="groups.list",
    text="""List groups with their type and state, now or at a past time.

    Examples:
      offsetstream groups list
      offsetstream groups list --group 'team-a-*' --type Consumer --state Stable
      offsetstream groups list --at 03:00
      offsetstream groups list --output json --file groups.json

    Exit code 1: a group does not exist.""",
    filters=("group",),
    options=(
        click.option(
            "--state",
            multiple=True,
            type=click.Choice(_STATES, case_sensitive=False),
            metavar=f"[{'|'.join(_STATES)}]",  # newer versions of click would write them in small letters
            help="Show only groups in this state (repeatable; default: all).",
        ),
        click.option(
            "--type",
            "group_type",
            envvar="OFFSETSTREAM_GROUPS_LIST_TYPE",
            multiple=True,
            type=click.Choice(_TYPES, case_sensitive=False),
            metavar=f"[{'|'.join(_TYPES)}]",
            help="Show only groups of this type (repeatable; default: all).",
        ),
    ),
    columns=(
        Column("group", "GROUP", 15, of="group_id"),
        Column("type", "TYPE", 20, of="group_type"),
        Column("state", "STATE", 20),
        Column("protocol_type"),
        Column("is_simple"),
        Column("members", of="member_count"),
        Column("offsets_partition"),
        Column("in_coordinator_partition"),
        *AGE,
    ),
    parts=_listed,
).command()


_RANK = {each.word: rank for rank, each in enumerate(VERDICTS)}
_TRANSACTION, _NAMED = "an open transaction on ", "the open transaction "
_WHO = "; 'offsetstream partitions --blocked' shows what ends it"
_END = "kafka-transactions.sh forceTerminateTransaction --transactionalId"
_FAILS: Mapping[str, Collection[str]] = {"WARN": NOT_WELL, "ERR": ("ERR",), "never": ()}


def _judged(asked: Asked) -> Rows:
    """Return the groups, the worst first, each with the longest wait of its messages."""
    # First, since time_lag reuses what this defines. The rows are fetched at once: after the next definition, DuckDB
    # would bind the relation again, which takes longer than reading a few rows.
    rows = fetch_sorted(asked.view("group_status"))
    waits = asked.view("time_lag").aggregate(
        """group_id, max(time_lag_seconds) AS seconds, bool_or(method = 'at least') AS at_least,
           min(sampled_at) AS oldest, max(sampled_at) AS newest"""
    )
    times = {row[0]: row[1:] for row in waits.fetchall()}
    for row in rows:
        seconds, at_least, oldest, newest = times.get(row["group_id"], (None, False, None, None))
        row |= {"time_lag_seconds": seconds, "time_lag_at_least": at_least, "newest_sample": newest}
        row["sampled"] = [each for each in (oldest, newest) if each]
    return sorted(rows, key=lambda row: (-_RANK[row["verdict"]], -(row["total_lag"] or 0), row["group_id"]))


def _with_verdict(asked: Asked, rows: Rows) -> Rows:
    wanted = asked.options["verdict"]
    return [row for row in rows if not wanted or row["verdict"] in wanted]


def _add_place(_: Asked, row: Row) -> None:
    topic = row["verdict_topic"]
    is_shown = topic is not None and row["level"] != "OK"
    row["topic_partition"] = f"{topic}-{row['verdict_partition']}" if is_shown else None
    row["time_lag"] = waiting_time_text(row["time_lag_seconds"], at_least=row["time_lag_at_least"])


def _exit_code(asked: Asked, shown: Rows, rows: Rows) -> int:
    """Return the exit code. A stale group counts even if --verdict hides it: its verdict is unknown.

    So are all groups while no offsets partition is loaded.
    """
    fail_on = asked.options["fail_on"]
    if any(row["level"] in _FAILS[fail_on] for row in shown):
        return NOT_OK
    is_unknown = not asked.age.by_partition or any(row["is_stale"] for row in rows)
    return STALE if fail_on != "never" and is_unknown else 0


def _causes(rows: Rows) -> list[str]:
    """Return causes that several groups share, the most frequent first: one fix helps all of them."""
    counted_causes = Counter(row["cause"] for row in rows if row["cause"] is not None)
    return [
        f"{counted(number, 'group')}: {cause}{_advice(cause)}"
        for cause, number in counted_causes.most_common()
        if number > 1
    ]


def _advice(cause: str) -> str:
    """Return how to end a transaction. Its coordinator can end one with a known id on all of its partitions."""
    if cause.startswith(_NAMED):
        return f"; '{_END} {shlex.quote(cause.removeprefix(_NAMED))}' ends it"
    return _WHO if cause.startswith(_TRANSACTION) else ""


def _without_repeated_reasons(rows: Rows) -> Rows:
    """Remove the reasons of groups without a sample: one warning line covers all of them."""
    unsampled = [row for row in rows if row["cause"] == NOT_LOOKED]
    for row in unsampled if len(unsampled) > 1 else ():
        row["reason"] = None
    return rows


def _status_closing(asked: Asked, rows: Rows) -> str:
    levels = Counter(row["level"] for row in rows)
    not_ok = levels["WARN"] + levels["ERR"]
    unknown = f", {levels['UNKNOWN']} unknown" if levels["UNKNOWN"] else ""
    if unchecked := sum(row["level"] == "UNKNOWN" and row["cause"] == NOT_LOOKED for row in rows):
        some = "" if unchecked == levels["UNKNOWN"] else f"{unchecked} of them "
        unknown += f" ({some}because {NOT_LOOKED})"
    lost = sum(row["messages_lost"] or 0 for row in rows)
    unknown += f", {counted(lost, 'message')} gone unread" if lost else ""
    verb = "is" if 1 in {not_ok, len(rows)} else "are"
    ends = ends_text([each for row in rows for each in row["sampled"]], asked.age.now)
    return f"{not_ok} of {counted(len(rows), 'group')} {verb} not OK{unknown}, {asked.as_of}; {ends}."


_COLUMNS = (
    Column("group", "GROUP", 15, of="group_id"),
    Column("state", "STATE", 6, of="group_state"),
    Column("members", of="member_count"),
    Column("level", "LEVEL", 5, "level"),
    Column("verdict", "VERDICT", 7),
    Column("topic", of="verdict_topic"),
    Column("partition", of="verdict_partition"),
    Column("topic_partition", "PARTITION", 9),
    Column("total_lag", "TOTAL-LAG", 9, "number"),
    Column("max_lag"),
    Column("messages_lost"),
    Column("time_lag", "TIME-LAG", 8, "duration", sort="time_lag_seconds"),
    Column("time_lag_seconds"),
    Column("time_lag_at_least"),
    Column("reason", "REASON", of="verdict_reason"),
    Column("cause"),
    Column("burrow", of="status"),
    Column("burrow_partition_status", of="worst_status"),
    Column("burrow_topic", of="worst_topic"),
    Column("burrow_partition", of="worst_partition"),
    Column("burrow_reason", of="status_reason"),
    Column("partitions"),
    Column("partitions_not_ok"),
    Column("complete"),
    Column("last_commit_time", unit="time", of="last_commit_at_ms"),
    Column("type", of="group_type"),
    Column("sampled_at", unit="time", of="newest_sample"),
    *AGE,
)
_BURROW = Column("burrow", "BURROW", 6, "level", of="status")


def _columns_of(asked: Asked, _: Rows) -> Sequence[Column]:
    return [_BURROW if asked.options["burrow"] and each.name == _BURROW.name else each for each in _COLUMNS]


status = Answer(
    name="groups.status",
    text="""Show which groups have trouble, and why: the worst first.

    A group has the verdict of its worst partition, which the column PARTITION names.

    Examples:
      offsetstream groups status
      offsetstream groups status --group my-group --fail-on ERR
      offsetstream groups status --verdict dead --verdict stopped
      offsetstream groups status --not-ok --min-time-lag 5m
      offsetstream groups status --at 03:00 --output json
      offsetstream groups status --watch 10

    Exit codes: 4 a group in the answer is WARN or ERR (--fail-on); 5 no group is, but some are unknown because their
    samples are too old (--max-age); 1 a group does not exist.""",
    filters=("group",),
    options=(
        click.option(
            "--fail-on",
            type=click.Choice(list(_FAILS)),
            default="WARN",
            show_default=True,
            help="Exit with 4 if a level is at least WARN, if it is ERR, or never.",
        ),
        click.option(
            "--verdict",
            multiple=True,
            type=click.Choice(WORDS),
            help="Show only groups with this verdict (repeatable; default: all).",
        ),
        click.option("--burrow", is_flag=True, help="Also show Burrow's status (OK, WARN, ERR, NOTFOUND)."),
    ),
    rows=_judged,
    columns=_COLUMNS,
    columns_of=_columns_of,
    shown=_with_verdict,
    complete=_add_place,
    for_text=_without_repeated_reasons,
    warnings=_causes,
    closing=_status_closing,
    exit_code=_exit_code,
    worst="level:desc",
    orders_data=True,
    not_ok=lambda row: row["level"] in NOT_WELL,
    lag="total_lag",
    time_lag="time_lag_seconds",
).command()
