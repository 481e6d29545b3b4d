"""`offsetstream dump` from a live cluster: the part that needs Spark and the Kafka client."""

from __future__ import annotations

from typing import BinaryIO

from offsetstream.cli.options import client_properties
from offsetstream.cluster.client import Cluster, readable_partitions
from offsetstream.cluster.login import java_plugins
from offsetstream.dump.formats import UnprintableRecords
from offsetstream.dump.topic import SESSION, Range, dump
from offsetstream.errors import UsageError
from offsetstream.spark.failures import explain_failure
from offsetstream.spark.local import local_session
from offsetstream.spark.source import KafkaSource


class ClusterDump:
    """A dump of a cluster. Creating it checks access and offsets, so that no file is written if that fails."""

    def __init__(self, bootstrap_server: str, command_config: str | None, wanted: tuple[int, ...]) -> None:
        self._properties = client_properties(command_config)
        self._bootstrap_server = bootstrap_server
        self._cluster = Cluster(bootstrap_server, self._properties)
        self._ranges = _ranges(self._cluster, wanted)

    def write(self, line_format: str, master: str, target: BinaryIO) -> UnprintableRecords | None:
        """Read the records by Spark and write the lines; see `dump.topic`."""
        source = KafkaSource(self._bootstrap_server, self._properties)
        spark = local_session(master, SESSION, java_plugins(self._properties))
        try:
            with explain_failure(self._cluster):
                return dump(spark, source, self._ranges, line_format, target)
        finally:
            spark.stop()


def _ranges(cluster: Cluster, wanted: tuple[int, ...]) -> dict[int, Range]:
    present = readable_partitions(cluster)
    unknown = sorted(set(wanted) - set(present))
    if unknown:
        raise UsageError(f"__consumer_offsets has no partition {unknown[0]}: it has 0 to {len(present) - 1}")
    ends = cluster.partition_ends(wanted or present)
    return {number: (end.log_start_offset, end.last_stable_offset) for number, end in ends.items()}
