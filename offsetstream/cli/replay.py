"""`offsetstream replay`: what a group coordinator would hold after a log, from files alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from offsetstream.cli.line_files import STDIO, file_option, open_input, open_output
from offsetstream.cli.segments import open_partitions, warn
from offsetstream.cli.tell import tell
from offsetstream.cli.times import ParamType
from offsetstream.codec.log_segments import read_segments
from offsetstream.codec.readers import JsonObject
from offsetstream.codec.record_batches import RecordBatch
from offsetstream.codec.record_lines import read_record_lines
from offsetstream.control_characters import without_controls
from offsetstream.coordinator import GroupMetadataCache
from offsetstream.coordinator.kinds import Coordinator
from offsetstream.coordinator.log_cut import until
from offsetstream.coordinator.replay.release_rules import FIRST_RELEASE, LAST_RELEASE, UNMERGED
from offsetstream.errors import UsageError

_UNNAMED = -1  # the number of a partition that neither folder nor line tells: the output shows none


class Time(ParamType[int]):
    """A point in time, as milliseconds since 1970."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read ISO 8601, in UTC if it does not say, or milliseconds."""
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
  offsetstream replay records.jsonl --coordinator classic
  offsetstream replay records.jsonl --release 4.1.1 --strict
  offsetstream dump --bootstrap-server localhost:9092 --format records | offsetstream replay -

A line is {"partition", "offset", "timestamp", "key", "value"}, key and value in base64; of a transaction also
"producer_id", "transactional": true and, of the marker that ends it, "control_type": "COMMIT" or "ABORT". Without
these it is a committed record. A line is a batch of its own, which makes no difference to a coordinator.

A record that cannot be replayed is left aside, and stderr tells of it, exit code 0. With --strict its whole partition
has failed, as on a broker: nothing of it is shown, stderr tells why, and the exit code is 1."""
)
@click.argument("file", metavar="FILE")
@click.option(
    "--coordinator",
    type=click.Choice(["new", "classic"]),
    default="new",
    show_default=True,
    help="The coordinator of Kafka 4, or the one of 3.9 and older; they differ in corners.",
)
@click.option(
    "--release",
    metavar="RELEASE",
    help=f"Kafka's release, of the new coordinator: {FIRST_RELEASE} to {LAST_RELEASE}, such as 4.1.1; or {UNMERGED}:"
    f" the newest with a rule that is only proposed (KAFKA-21117).  [default: {LAST_RELEASE}]",
)
@click.option("--topics", "topics_file", metavar="FILE", help='Names of topic ids, as JSON: {"id": "name"}.')
@click.option("--until-offset", type=click.IntRange(0), metavar="N", help="Of each partition, only what is below N.")
@click.option(
    "--until-time",
    type=Time(),
    metavar="T",
    help="Of each partition, only what is before the first record of time T or later: ISO 8601, or milliseconds.",
)
@click.option("--strict", is_flag=True, help="Fail a partition at a record that cannot be replayed, as a broker does.")
@file_option
def replay(
    file: str,
    coordinator: Coordinator,
    release: str | None,
    topics_file: str | None,
    until_offset: int | None,
    until_time: int | None,
    strict: bool,
    output_file: str | None,
) -> None:
    """Print the groups and committed offsets that a log of __consumer_offsets amounts to, as one JSON object.

    FILE is a log segment, a folder of segments, a folder of partitions' folders (a broker's log dir), or raw lines of
    JSON (- for stdin). Neither a broker nor Spark is needed. Transactions that are open at the end are not counted.
    """
    if release is not None and coordinator == "classic":
        raise UsageError("--release is one of the new coordinator; it does not go with --coordinator classic")
    topic_names = _read_topics(topics_file)
    cache = GroupMetadataCache(coordinator, release=release or LAST_RELEASE, on_bad_record="fail" if strict else "skip")
    failed = [_load(cache, number, until(log, until_offset, until_time)) for number, log in _partitions(file)]
    snapshot = cache.snapshot(topic_names)
    _tell_undecodable(snapshot)
    with open_output(output_file) as target:
        target.write(_printed(snapshot).encode("utf-8", "backslashreplace"))
    if any(failed):
        click.get_current_context().exit(1)


def _partitions(file: str) -> Iterator[tuple[int | None, Iterable[RecordBatch]]]:
    if _is_lines(file):
        with open_input(file) as lines:
            found = read_record_lines(lines, "stdin" if file == STDIO else file)
        yield from sorted(found.items(), key=lambda item: _UNNAMED if item[0] is None else item[0])
    else:
        for partition in open_partitions([file]):
            yield partition.number, read_segments(partition.segments, warn)


def _is_lines(file: str) -> bool:
    """Whether the file has lines: a segment begins with an offset, and no offset is so great that its first byte is."""
    if file == STDIO:
        return True
    path = Path(file)
    try:
        if path.is_dir():
            return False
        if not path.is_file():
            return True  # a pipe, of which nothing may be read but once
        with path.open("rb") as opened:
            first = opened.read(1)
    except (OSError, ValueError):
        return True  # whoever opens it says why it cannot be read
    return first == b"{" or not (first == b"\0" or path.suffix == ".log")


def _load(cache: GroupMetadataCache, number: int | None, log: Iterable[RecordBatch]) -> bool:
    """Load a partition, and tell on stderr what could not be; return whether it failed."""
    name = "the partition" if number is None else f"partition {number}"
    result = cache.load_partition(_UNNAMED if number is None else number, log)
    if result.skipped:
        offset, reason = next(iter(result.skipped.items()))
        warn(f"{name}: {len(result.skipped)} records were left aside, the first at offset {offset}: {reason}")
    if result.problem is not None:
        warn(f"{name}: a broker logs an error: {result.problem}")
    if result.status == "failed":
        tell(f"Error: {name} failed to load: {result.error}")
    return result.status == "failed"


def _tell_undecodable(snapshot: JsonObject) -> None:
    for group in snapshot["groups"]:
        for member in group.get("members", ()):
            if reason := member.get("assignment_error"):
                name = f"member '{member['member_id']}' of group '{group['group_id']}'"
                warn(f"the assignment of {name} cannot be decoded: {reason}")


def _read_topics(path: str | None) -> Mapping[str, str]:
    if path is None:
        return {}
    try:
        names = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f'cannot read topics from {path}: {reason}; it should hold {{"id": "name"}}') from error
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise UsageError(f'{path} does not hold the names of topic ids as {{"id": "name"}}')
    return names


def _printed(snapshot: JsonObject) -> str:
    lists = ", ".join(f"{json.dumps(name)}: {_list(rows)}" for name, rows in snapshot.items())
    return without_controls("{" + lists + "}\n")


def _list(rows: Sequence[JsonObject]) -> str:
    """Print one object a line."""
    objects = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in rows)
    return f"[\n  {objects}\n]" if rows else "[]"
