"""The errors that offsetstream raises: one small tree; each says what, where and what to do."""

from collections.abc import Collection


def is_interrupt(error: BaseException) -> bool:
    """Tell whether Ctrl-C was what ended something; within a query DuckDB says it in words of its own."""
    return isinstance(error, KeyboardInterrupt) or str(error) == "Query interrupted"


def first_line(error: BaseException) -> str:
    """Return what an error of another library says, without its stack of causes."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


class OffsetstreamError(Exception):
    """Anything that stops a command; the message is one line for a person."""

    exit_code = 1


class UsageError(OffsetstreamError):
    """The command was called in a way that cannot work."""

    exit_code = 2


class ClusterError(OffsetstreamError):
    """The cluster could not be asked."""

    exit_code = 3


class UnreachableError(ClusterError):
    """No broker answered."""


class UnauthorisedError(ClusterError):
    """A broker refused: a right or a credential is missing."""


class OtherClusterError(OffsetstreamError):
    """Another cluster answers at the same address."""


class NoOffsetsTopicError(ClusterError):
    """The topic __consumer_offsets does not exist (yet)."""


class UnknownNameError(OffsetstreamError):
    """No table knows a group or a topic of this name, now or before."""


class MissingPackageError(OffsetstreamError, ImportError):
    """A package that an extra brings is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs the package {package}: pip install 'offsetstream[{extra}]'")


class TablesError(OffsetstreamError):
    """The Delta tables are missing, of another cluster, or of another version of offsetstream."""


class NoTableError(TablesError):
    """A table is not there."""


class ConflictError(TablesError):
    """Somebody else wrote to the table meanwhile: who opens it again sees what they left."""


class DoubledRowsError(TablesError):
    """A state table has rows with the same key; `partitions` names their offsets partitions, which must be loaded."""

    def __init__(self, table: str, partitions: Collection[int]) -> None:
        numbers = ", ".join(map(str, sorted(partitions)))
        super().__init__(f"the table {table} has rows twice in the offsets partitions {numbers}")
        self.partitions = frozenset(partitions)


class SegmentError(OffsetstreamError):
    """A Kafka log segment is damaged, or is none."""


class ReplayError(OffsetstreamError):
    """A record that a coordinator cannot replay: a broker's load of the partition fails at it."""


class IllegalStateError(ReplayError):
    """Kafka's IllegalStateException: what was asked for does not fit the state of the group or the transaction."""


class UnreadableRecordError(OffsetstreamError):
    """A record of the topic that Spark's Kafka source cannot read."""


class LineError(OffsetstreamError):
    """A line of a file of records is none."""


class LeaseError(OffsetstreamError):
    """Another job writes to these tables."""


class SparkEndedError(OffsetstreamError):
    """Spark's Java process was killed, or ended by itself."""


class EnvironmentNotReadyError(OffsetstreamError):
    """Something that this machine must have is missing: Java, a port, disk space, a registry."""
