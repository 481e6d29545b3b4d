"""`offsetstream replay`: rebuild a group coordinator's state from log files, without a broker."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from offsetstream.cli.lines import STDIO, file_option, open_input, open_output
from offsetstream.cli.segments import Skipped, open_partitions, skip_damaged_option, topics_option, warn
from offsetstream.cli.text import ParamType, counted, print_line
from offsetstream.codec.batches import RecordBatch
from offsetstream.codec.damaged_segments import find_surviving
from offsetstream.codec.lines import read_record_lines
from offsetstream.codec.log_segments import read_segments
from offsetstream.codec.serde import JsonObject
from offsetstream.control_characters import without_controls
from offsetstream.coordinator import GroupMetadataCache
from offsetstream.coordinator.partitioning import Coordinator
from offsetstream.coordinator.replay.partition import cut_log
from offsetstream.coordinator.replay.release_rules import FIRST_RELEASE, LAST_RELEASE, UNMERGED
from offsetstream.errors import UsageError

_UNNUMBERED = -1  # stands for a partition whose number is unknown; the output shows no number


class Time(ParamType[int]):
    """A parameter type for a time, converted to milliseconds since 1970."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse ISO 8601 (UTC without a zone) or milliseconds."""
        try:
            if isinstance(value, int) or value.isdecimal():
                return int(value)
            time = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is neither ISO 8601, such as 2026-11-21T03:00:00Z, nor milliseconds", param, ctx)
        return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


@click.command(
    epilog="""\b
Examples:
  offsetstream replay /var/lib/kafka/data
  offsetstream replay 00000000000000000000.log --until-offset 4711
  offsetstream replay /var/lib/kafka/data --skip-damaged
  offsetstream replay records.jsonl --coordinator classic
  offsetstream replay records.jsonl --release 4.1.1 --strict
  offsetstream dump --bootstrap-server localhost:9092 --format records | offsetstream replay -

A line of JSON is {"partition", "offset", "timestamp", "key", "value"}, with key and value in base64. A transactional
record also has "producer_id" and "transactional": true; the marker that ends a transaction has in addition
"control_type": "COMMIT" or "ABORT". A record without these fields counts as committed. Each line is a separate batch.

A record that cannot be replayed is skipped with a warning on stderr; the exit code is 0. With --strict its complete
partition fails, as on a broker: the output has nothing of it, stderr says why, and the exit code is 1.

A damaged log segment ends the replay with exit code 1. With --skip-damaged it continues behind the damage, and stderr
says which bytes and offsets are missing. The output then has the last values that survive."""
)
@click.argument("file", metavar="FILE")
@click.option(
    "--coordinator",
    type=click.Choice(["new", "classic"]),
    default="new",
    show_default=True,
    help="Replay as Kafka 4 does (new), or as 3.9 and older (classic).",
)
@click.option(
    "--release",
    metavar="RELEASE",
    help=f"Follow the rules of this Kafka release, {FIRST_RELEASE} to {LAST_RELEASE}; or {UNMERGED}: the newest and a "
    f"proposed rule (KAFKA-21117). Only for new.  [default: {LAST_RELEASE}]",
)
@topics_option
@click.option(
    "--until-offset",
    type=click.IntRange(0),
    metavar="N",
    help="Replay each partition only up to, not including, offset N.",
)
@click.option(
    "--until-time",
    type=Time(),
    metavar="T",
    help="Replay each partition up to its first record of this time or later: ISO 8601 or milliseconds since 1970.",
)
@click.option("--strict", is_flag=True, help="Fail a partition at a record that cannot be replayed.")
@skip_damaged_option
@file_option
def replay(
    file: str,
    coordinator: Coordinator,
    release: str | None,
    topic_names: Mapping[str, str],
    until_offset: int | None,
    until_time: int | None,
    strict: bool,
    skip_damaged: bool,
    output_file: str | None,
) -> None:
    """Rebuild groups and committed offsets from a log of __consumer_offsets, and print them as one JSON object.

    FILE is a log segment, a folder of segments, a folder of partition folders (a broker's log dir), or a file of JSON
    lines (- for stdin). This needs neither a broker nor Spark. Transactions that are open at the end are ignored.
    """
    if release is not None and coordinator == "classic":
        raise UsageError("--release is only for the new coordinator: omit it with --coordinator classic")
    cache = GroupMetadataCache(coordinator, release=release or LAST_RELEASE, on_bad_record="fail" if strict else "skip")
    skipped = Skipped() if skip_damaged else None
    logs = _partitions(file, skipped)
    failed = [_load(cache, number, cut_log(log, until_offset, until_time)) for number, log in logs]
    snapshot = cache.snapshot(topic_names)
    _warn_undecodable(snapshot)
    with open_output(output_file) as target:
        target.write(_printed(snapshot).encode("utf-8", "backslashreplace"))
    if skipped is not None:
        skipped.close()
    if any(failed):
        click.get_current_context().exit(1)


def _partitions(file: str, skipped: Skipped | None) -> Iterator[tuple[int | None, Iterable[RecordBatch]]]:
    if _is_lines(file):
        with open_input(file) as lines:
            if skipped is not None:
                raise UsageError("--skip-damaged is for log segments, not for JSON lines")
            by_partition = read_record_lines(lines, "stdin" if file == STDIO else file)
        yield from sorted(by_partition.items(), key=lambda item: _UNNUMBERED if item[0] is None else item[0])
    else:
        for partition in open_partitions([file]):
            if skipped is None:
                yield partition.number, read_segments(partition.segments, warn)
            else:
                transactions, batches = find_surviving(partition, warn, skipped.add)
                yield partition.number, transactions.known(batches)


def _is_lines(file: str) -> bool:
    """Tell whether the file has JSON lines. A segment starts with an offset, whose first byte is always zero."""
    if file == STDIO:
        return True
    path = Path(file)
    try:
        if path.is_dir():
            return False
        if not path.is_file():
            return True  # a pipe can be read only once
        with path.open("rb") as opened:
            first = opened.read(1)
    except (OSError, ValueError):
        return True  # opening it later reports why it cannot be read
    return first == b"{" or not (first == b"\0" or path.suffix == ".log")


def _load(cache: GroupMetadataCache, number: int | None, log: Iterable[RecordBatch]) -> bool:
    """Load a partition, warn about what could not be loaded, and return whether it failed."""
    name = "the partition" if number is None else f"partition {number}"
    result = cache.load_partition(_UNNUMBERED if number is None else number, log)
    if result.skipped:
        offset, reason = next(iter(result.skipped.items()))
        records, were = counted(len(result.skipped), "record"), "was" if len(result.skipped) == 1 else "were"
        warn(f"{name}: {records} {were} skipped, the first at offset {offset}: {reason}")
    if result.problem is not None:
        warn(f"{name}: a broker would log an error: {result.problem}")
    if result.status == "failed":
        print_line(f"Error: {name} failed to load: {result.error}")
    return result.status == "failed"


def _warn_undecodable(snapshot: JsonObject) -> None:
    for group in snapshot["groups"]:
        for member in group.get("members", ()):
            if reason := member.get("assignment_error"):
                name = f"member '{member['member_id']}' of group '{group['group_id']}'"
                warn(f"the assignment of {name} cannot be decoded: {reason}")


def _printed(snapshot: JsonObject) -> str:
    lists = ", ".join(f"{json.dumps(name)}: {_list(rows)}" for name, rows in snapshot.items())
    return without_controls("{" + lists + "}\n")


def _list(rows: Sequence[JsonObject]) -> str:
    """Format a list with one object per line."""
    objects = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in rows)
    return f"[\n  {objects}\n]" if rows else "[]"
