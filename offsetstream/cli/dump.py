"""``offsetstream dump``: the records of __consumer_offsets, straight from a cluster."""

from __future__ import annotations

import click

from offsetstream.cli.line_files import file_option, open_output
from offsetstream.cluster.client import Cluster
from offsetstream.cluster.properties import read_properties
from offsetstream.errors import UsageError
from offsetstream.stream.dump import SESSION, Range, Unprintable
from offsetstream.stream.dump import dump as write_dump
from offsetstream.stream.failures import explain_failure
from offsetstream.stream.record_text import LINE_FORMATS
from offsetstream.stream.session import local_session
from offsetstream.stream.source import KafkaSource


@click.command(
    epilog="""\b
Examples:
  offsetstream dump --bootstrap-server localhost:9092
  offsetstream dump --bootstrap-server localhost:9092 --format kafka --offsets-partition 12
  offsetstream dump --bootstrap-server broker:9093 --command-config client.properties --format records --file lines

Exit code 0 also where records cannot be decoded: in JSON such a line has an "error", and its bytes. Kafka's own
formats have no place for an error: there stderr tells how many there are, and the exit code is 1."""
)
@click.option("--bootstrap-server", required=True, metavar="HOST:PORT", help="A broker to connect to.")
@click.option("--command-config", metavar="FILE", help="Kafka client properties (SASL, TLS).")
@click.option(
    "--offsets-partition", multiple=True, type=int, help="Only this partition of __consumer_offsets; repeatable."
)
@click.option(
    "--format",
    "line_format",
    type=click.Choice(LINE_FORMATS),
    default="json",
    show_default=True,
    help="The lines that 'decode' takes (records), or what it makes of them.",
)
@click.option("--master", default="local[*]", show_default=True, help="Spark master, on this machine.")
@file_option
def dump(
    bootstrap_server: str,
    command_config: str | None,
    offsets_partition: tuple[int, ...],
    line_format: str,
    master: str,
    output_file: str | None,
) -> None:
    """Print the records of __consumer_offsets, a line each, by partition and offset.

    From the start of the log to its last stable offset now; records of open and aborted transactions are left out.
    """
    properties = read_properties(command_config)
    cluster = Cluster(bootstrap_server, properties)
    ranges = _ranges(cluster, offsets_partition)
    with open_output(output_file) as target:
        spark = local_session(master, SESSION)
        try:
            with explain_failure(cluster):
                found = write_dump(spark, KafkaSource(bootstrap_server, properties), ranges, line_format, target)
        finally:
            spark.stop()
    if found is not None:
        click.echo(f"Error: {_message(found)}", err=True)
        click.get_current_context().exit(1)


def _ranges(cluster: Cluster, wanted: tuple[int, ...]) -> dict[int, Range]:
    present = cluster.topic_partitions()
    unknown = sorted(set(wanted) - set(present))
    if unknown:
        raise UsageError(f"__consumer_offsets has no partition {unknown[0]}: it has {len(present)}, counted from 0")
    ends = cluster.partition_ends(wanted or present)
    return {number: (end.log_start_offset, end.last_stable_offset) for number, end in ends.items()}


def _message(found: Unprintable) -> str:
    return (
        f"{found.count} records cannot be decoded, the first at offset {found.record_offset} of offsets partition "
        f"{found.offsets_partition}: {found.reason}; --format json prints them with their bytes"
    )
