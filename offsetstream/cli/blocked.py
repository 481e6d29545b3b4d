"""`offsetstream partitions --blocked`: open transactions that block partitions, and the commands that end them."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.messages import counted, print_line
from offsetstream.cli.options import client_properties
from offsetstream.cli.output import Column, Output
from offsetstream.cli.times import duration_text, instant_text, milliseconds, time_text
from offsetstream.errors import ClusterError, UsageError

if TYPE_CHECKING:
    from offsetstream.cluster.client import Cluster
    from offsetstream.cluster.log_ends import Answers, LogEnd, NoEnd
    from offsetstream.cluster.open_transactions import Open, OpenTransaction

_COLUMNS = (
    Column("topic", "TOPIC", 10),
    Column("partition", "PARTITION", 0, "id"),
    Column("last_stable_offset", "LAST-STABLE-OFFSET", 0, "id"),
    Column("high_watermark", "HIGH-WATERMARK", 0, "id"),
    Column("blocked_records", "BLOCKED", 0, "number"),
    Column("producer_id", "PRODUCER-ID", 0, "id"),
    Column("producer_epoch", "EPOCH", 0, "id"),
    Column("transactional_id", "TRANSACTIONAL-ID"),
    Column("state", "STATE"),
    Column("start_offset", "START-OFFSET", 0, "id"),
    Column("started_at", "STARTED-AT"),
    Column("age", "AGE", 0, "duration"),
    Column("timeout", "TIMEOUT", 0, "duration"),
    Column("is_hanging", "HANGING"),
    Column("age_ms"),
    Column("timeout_ms"),
    Column("last_written_at"),
    Column("coordinator_id"),
    Column("coordinator_epoch"),
    Column("leader_id"),
    Column("error", "ERROR"),
    Column("command", "END-IT-BY"),
    Column("abort_command"),
)
_TIMEOUT = 30.0  # seconds for each request
Row = dict[str, Any]
Wanted = Mapping[str, Collection[int] | None]


def show_blocked(
    output: Output,
    bootstrap_server: str | None,
    command_config: str | None,
    *,
    offsets_partitions: Collection[int],
    groups: Collection[str],
    topics: Collection[str],
) -> None:
    """Print a row for each open transaction that blocks a partition; exit with code 1 if there is any.

    It checks all offsets partitions, or some, or the data partitions of groups or topics.
    """
    if bootstrap_server is None:
        raise UsageError("--blocked reads the live cluster: name a broker by --bootstrap-server")
    if offsets_partitions and (groups or topics):
        raise UsageError(
            "--offsets-partition selects __consumer_offsets, --group and --topic data topics: give one kind"
        )
    from offsetstream.cluster.client import (  # noqa: PLC0415 - imported on use
        require_to_read,
        require_to_see_topics_of_groups,
    )
    from offsetstream.cluster.log_ends import NO_TOPIC, LogEnds, NoEnd  # noqa: PLC0415 - imported on use

    properties = client_properties(command_config)
    cluster = LogEnds(bootstrap_server, properties)
    if groups:
        require_to_see_topics_of_groups(cluster, topics)
    wanted = _wanted(bootstrap_server, properties, offsets_partitions, groups, topics)
    require_to_read(cluster, wanted)
    answers = cluster.ends(wanted, {})
    ends = {place: end for place, end in answers.items() if not (isinstance(end, NoEnd) and end.error == NO_TOPIC)}
    rows = _rows(bootstrap_server, command_config, ends, _opened(cluster, properties, ends))
    output.table(_COLUMNS, rows, closing=_closing(rows, len(ends)))
    missing = _missing(wanted, ends)
    for message in missing:
        print_line(f"Error: {message}")
    click.get_current_context().exit(1 if rows or missing else 0)


def _wanted(
    bootstrap_server: str,
    properties: Mapping[str, str],
    offsets_partitions: Collection[int],
    groups: Collection[str],
    topics: Collection[str],
) -> Wanted:
    from offsetstream.cluster.offsets import GroupOffsets  # noqa: PLC0415 - imported on use
    from offsetstream.cluster.rights import OFFSETS_TOPIC  # noqa: PLC0415 - likewise

    if not groups:
        return dict.fromkeys(topics) if topics else {OFFSETS_TOPIC: offsets_partitions or None}
    cluster, found = GroupOffsets(bootstrap_server, properties), dict[str, set[int]]()
    for group_id in groups:
        places = [place for place in cluster.fetch(group_id) if not topics or place[0] in topics]
        if not places:
            print_line(f"Error: group '{group_id}' has no such committed offset.")
            click.get_current_context().exit(1)
        for topic, number in places:
            found.setdefault(topic, set()).add(number)
    return found


def _opened(cluster: Cluster, properties: Mapping[str, str], ends: Answers) -> Open:
    from offsetstream.cluster.java_client import LIMITED_RETRIES, java_admin  # noqa: PLC0415 - imported on use
    from offsetstream.cluster.log_ends import LogEnd  # noqa: PLC0415 - likewise
    from offsetstream.cluster.open_transactions import OpenTransactions  # noqa: PLC0415 - likewise

    blocked = [place for place, end in ends.items() if isinstance(end, LogEnd) and _blocked_records(end)]
    if not blocked:
        return {}
    with java_admin(cluster.bootstrap_server, {**properties, **LIMITED_RETRIES}) as (jvm, client):
        return OpenTransactions(jvm, client, _TIMEOUT).find(blocked, all_coordinate=_all_coordinate(cluster))


def _all_coordinate(cluster: Cluster) -> bool:
    """Return whether each partition of __transaction_state has a leader; false if that cannot be read."""
    from offsetstream.cluster.rights import TRANSACTION_STATE  # noqa: PLC0415 - imported on use

    try:
        return None not in cluster.leaders(TRANSACTION_STATE).values()
    except ClusterError:
        return False


def _blocked_records(end: LogEnd) -> int:
    return end.high_watermark - end.last_stable_offset


def _rows(bootstrap_server: str, command_config: str | None, ends: Answers, opened: Open) -> list[Row]:
    tool = ["kafka-transactions.sh", "--bootstrap-server", bootstrap_server]
    tool += ["--command-config", command_config] if command_config else []
    return [row for place in sorted(ends) for row in _partition_rows(tool, place, ends[place], opened.get(place))]


def _partition_rows(
    tool: list[str], place: tuple[str, int], end: LogEnd | NoEnd, opened: list[OpenTransaction] | str | None
) -> Iterator[Row]:
    from offsetstream.cluster.log_ends import NoEnd  # noqa: PLC0415 - imported on use

    row = {"topic": place[0], "partition": place[1]}
    if isinstance(end, NoEnd):
        yield row | {"error": end.error}
        return
    row |= {"blocked_records": _blocked_records(end), "leader_id": end.leader_id}
    row |= {"last_stable_offset": end.last_stable_offset, "high_watermark": end.high_watermark}
    if isinstance(opened, str):
        yield row | {"error": opened}
    else:  # none if it has just ended
        yield from (row | _transaction(tool, place, each) for each in opened or ())


def _transaction(tool: list[str], place: tuple[str, int], opened: OpenTransaction) -> Row:
    started, now_ms = opened.started_ms, milliseconds(datetime.now(UTC))
    age = None if started is None else now_ms - started
    abort = ["abort", "--topic", place[0], "--partition", str(place[1]), "--start-offset", str(opened.start_offset)]
    end_command = abort
    if opened.transactional_id is not None and opened.is_hanging is False:
        # The coordinator ends it on all its partitions; an abort of one partition would split the transaction.
        end_command = ["forceTerminateTransaction", "--transactionalId", opened.transactional_id]
    return asdict(opened) | {
        "started_at": time_text(started),
        "age": duration_text(age),
        "age_ms": age,
        "timeout": duration_text(opened.timeout_ms),
        "last_written_at": time_text(opened.last_written_ms),
        "command": shlex.join([*tool, *end_command]),
        "abort_command": shlex.join([*tool, *abort]),
    }


def _closing(rows: list[Row], asked: int) -> str:
    transactions = [row for row in rows if row.get("producer_id") is not None]
    blocked = {(row["topic"], row["partition"]) for row in transactions}
    producers = {(row["producer_id"], row["producer_epoch"]) for row in transactions}
    silent = sum(1 for row in rows if row.get("error"))
    return (
        f"{len(blocked)} of {counted(asked, 'partition')} blocked by open transactions of "
        f"{counted(len(producers), 'producer')}, as of {instant_text(datetime.now(UTC))}"
        + (f"; {silent} did not answer." if silent else ".")
    )


def _missing(wanted: Wanted, ends: Answers) -> list[str]:
    existing = {topic for topic, _ in ends}
    topics = [
        f"topic '{topic}' is not there" for topic in sorted(wanted) if not wanted[topic] and topic not in existing
    ]
    return topics + [
        f"{topic} has no partition {number}"
        for topic, numbers in sorted(wanted.items())
        for number in sorted(numbers or ())
        if (topic, number) not in ends
    ]
