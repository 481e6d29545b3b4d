"""`offsetstream dump`: print the records of __consumer_offsets, from a cluster or from a broker's log segments."""

from __future__ import annotations

import click
from click.core import ParameterSource

from offsetstream.cli.lines import file_option, open_output
from offsetstream.cli.options import client_properties, cluster_options
from offsetstream.cli.segments import Skipped, open_partitions, skip_damaged_option, warn
from offsetstream.cli.settings_file import config_option
from offsetstream.cli.text import counted, print_line
from offsetstream.dump.formats import LINE_FORMATS, UnprintableRecords
from offsetstream.errors import UsageError

_MASTER = "local[*]"


@click.command(
    epilog="""\b
Examples:
  offsetstream dump --bootstrap-server localhost:9092
  offsetstream dump --bootstrap-server localhost:9092 --format kafka --offsets-partition 12
  offsetstream dump --bootstrap-server broker:9093 --command-config client.properties --format records --file lines
  offsetstream dump --files /var/lib/kafka/data
  offsetstream dump --files __consumer_offsets-12 --skip-damaged
  offsetstream dump --files __consumer_offsets-12 --format records | offsetstream replay -

A record that cannot be decoded: in JSON its line has an "error" and the bytes, and the exit code stays 0. Kafka's own
formats have no place for errors: stderr shows their number, and the exit code is 1. A damaged log segment ends the dump
with exit code 1, and stderr names the batch. With --skip-damaged the dump continues behind it, and stderr says which
bytes and offsets are missing. A segment that ends within a batch is read up to that batch."""
)
@config_option("dump")
@cluster_options
@click.option(
    "--files",
    multiple=True,
    metavar="DIR",
    help="Read log segments, not a cluster: a segment, a folder of segments, or a broker's log dir (repeatable).",
)
@click.option(
    "--offsets-partition",
    multiple=True,
    type=int,
    help="Dump only this partition of __consumer_offsets (repeatable; default: all).",
)
@click.option(
    "--format",
    "line_format",
    type=click.Choice(LINE_FORMATS),
    default="json",
    show_default=True,
    help="Format of the lines: records is the input of 'decode' and 'replay'; the others are as for 'decode'.",
)
@click.option(
    "--master", default=_MASTER, show_default=True, help="Spark master for a dump from a cluster; it must be local."
)
@skip_damaged_option
@file_option
def dump(
    bootstrap_server: str | None,
    command_config: str | None,
    files: tuple[str, ...],
    offsets_partition: tuple[int, ...],
    line_format: str,
    master: str,
    skip_damaged: bool,
    output_file: str | None,
) -> None:
    """Print the records of __consumer_offsets, one line each, by partition and offset.

    The dump starts at the start of the log and ends at its last stable offset. It skips records of open and aborted
    transactions. Only --files with --format records prints them, with the markers that end transactions: lines of
    producers with an id then also have "producer_id", "transactional" and "control_type" (COMMIT or ABORT).
    """
    if files and click.get_current_context().get_parameter_source("bootstrap_server") is ParameterSource.DEFAULT_MAP:
        bootstrap_server = None  # it came from the settings file, which many commands share
    if (bootstrap_server is None) == (not files):
        raise UsageError("name a cluster by --bootstrap-server or log segments by --files, not both")
    if skip_damaged and not files:
        raise UsageError("--skip-damaged is for log segments: name them by --files")
    if bootstrap_server is None:
        skipped = Skipped() if skip_damaged else None
        found = _dump_files(files, offsets_partition, line_format, output_file, skipped)
    else:
        found = _dump_cluster(bootstrap_server, command_config, offsets_partition, line_format, master, output_file)
    if found is not None:
        print_line(f"Error: {_message(found)}")
        click.get_current_context().exit(1)


def _dump_files(
    files: tuple[str, ...], wanted: tuple[int, ...], line_format: str, output_file: str | None, skipped: Skipped | None
) -> UnprintableRecords | None:
    from offsetstream.dump.segments import dump_segments

    partitions = open_partitions(files, wanted)
    with open_output(output_file) as target:
        if skipped is None:
            return dump_segments(partitions, line_format, target, warn)
        found = dump_segments(partitions, line_format, target, warn, skipped.add)
    skipped.close()
    return found


def _dump_cluster(
    bootstrap_server: str,
    command_config: str | None,
    wanted: tuple[int, ...],
    line_format: str,
    master: str,
    output_file: str | None,
) -> UnprintableRecords | None:
    # PySpark and the Kafka client take seconds to import, and log segments need neither.
    from offsetstream.dump.topic import ClusterDump

    cluster_dump = ClusterDump(bootstrap_server, client_properties(command_config), wanted)
    with open_output(output_file) as target:
        return cluster_dump.write(line_format, master, target)


def _message(found: UnprintableRecords) -> str:
    place = "" if found.offsets_partition is None else f" of offsets partition {found.offsets_partition}"
    records = counted(found.count, "record")
    return (
        f"{records} cannot be decoded, the first at offset {found.record_offset}{place}: {found.reason}; "
        "--format json prints them with their bytes"
    )
