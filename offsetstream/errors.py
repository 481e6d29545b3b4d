"""The errors that offsetstream raises. Each message says what happened, where, and what to do."""

import re
import textwrap
from collections.abc import Collection, Sequence

_COLOUR = re.compile(r"\x1b\[\d*m")
_ANSWER = re.compile(r"<Code>(.+?)</Code>\s*<Message>(.+?)</Message>", re.DOTALL)  # from S3 and Azure
_MAX_LENGTH = 400


def is_interrupt(error: BaseException) -> bool:
    """Return whether Ctrl-C caused the error. Within a query, DuckDB raises its own error for it."""
    return isinstance(error, KeyboardInterrupt) or text_of(error) == "Query interrupted"


def text_of(error: BaseException) -> str:
    """Return an error's text. Java's errors lose theirs when their JVM ends: the name of the type stands for it."""
    try:
        return str(error)
    except Exception:  # of several types: py4j asks the JVM
        return type(error).__name__


def text_with_cause(error: BaseException) -> str:
    """Return the texts of an error and of its cause."""
    return "\n".join(text_of(each) for each in (error, error.__cause__) if each is not None)


def first_line(error: BaseException) -> str:
    """Return the first line of an error from another library, without its causes."""
    return (text_of(error).strip() or type(error).__name__).splitlines()[0]


def one_line(error: Exception) -> str:
    """Return a message of delta-rs or of a store as one line, shortened for a terminal; the cause comes last."""
    if answer := _ANSWER.search(str(error)):
        return ": ".join(answer.groups())
    lines = (line.strip(" ↳") for line in _COLOUR.sub("", str(error)).splitlines())
    message = ": ".join(line for line in lines if line)
    return textwrap.shorten(message, _MAX_LENGTH, placeholder=" ...") or type(error).__name__


def shortened(names: Sequence[str], most: int = 3) -> str:
    """Return the first names as text for a message, and the number of the others: a, b, c and 4 more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


class OffsetstreamError(Exception):
    """Base class: an error that stops a command. The message is one line for the user."""

    exit_code = 1


class UsageError(OffsetstreamError):
    """The command or function was called incorrectly."""

    exit_code = 2


class ClusterError(OffsetstreamError):
    """A request to the cluster failed."""

    exit_code = 3


class UnreachableError(ClusterError):
    """No broker answered."""


class UnauthorisedError(ClusterError):
    """A broker refused the request: a permission or credential is missing."""


class RefusedLoginError(UnauthorisedError):
    """A broker refuses the login, or its certificate is not trusted. A changed file of the client may mend that."""


class OtherClusterError(OffsetstreamError):
    """Another cluster answers at the same address."""


class NoOffsetsTopicError(ClusterError):
    """The topic __consumer_offsets does not exist (yet)."""


class UnknownNameError(OffsetstreamError):
    """No table contains a group or topic of this name, now or in the past."""


class MissingPackageError(OffsetstreamError, ImportError):
    """A package of an extra is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs the package {package}: pip install 'offsetstream[{extra}]'")


class TablesError(OffsetstreamError):
    """The Delta tables are missing, unreadable, of another cluster, or of another version of offsetstream."""


class NoTableError(TablesError):
    """A table does not exist."""


class StoreFaultError(TablesError):
    """The store of the tables or of the checkpoints fails: it is full, does not answer, cannot be read or written.

    The same work may succeed again.
    """


class ConflictError(TablesError):
    """Another writer changed the table meanwhile. Open it again to see the change."""


class OlderCopyError(TablesError):
    """While a process worked with a table, an older copy of the table took its place."""


class DamagedTableError(TablesError):
    """A file of a table is lost or damaged. `table`: its name; `damage`: the file, and what is wrong."""

    def __init__(self, table: str, where: str, damage: str, tables: str) -> None:
        super().__init__(
            f"the table {where} is damaged: {damage}. See what is lost with 'offsetstream repair --tables {tables}'"
        )
        self.table, self.damage = table, damage


class DoubledRowsError(TablesError):
    """A state table has several rows with one key. The offsets partitions in `partitions` must be loaded again."""

    def __init__(self, table: str, partitions: Collection[int]) -> None:
        numbers = ", ".join(map(str, sorted(partitions)))
        super().__init__(f"the table {table} has rows twice in the offsets partitions {numbers}")
        self.partitions = frozenset(partitions)


class SegmentError(OffsetstreamError):
    """A file is not a Kafka log segment, or is damaged."""


class ReplayError(OffsetstreamError):
    """A coordinator cannot replay a record: a broker would fail to load the partition at it."""


class IllegalStateError(ReplayError):
    """Kafka's IllegalStateException: the operation does not fit the state of the group or transaction."""


class UnreadableRecordError(OffsetstreamError):
    """Spark's Kafka source cannot read a record of the topic."""


class LineError(OffsetstreamError):
    """A line in a file of records is invalid."""


class LeaseError(OffsetstreamError):
    """Another job holds the lease of these tables."""


class TakenGroupError(OffsetstreamError):
    """Another operation is changing a group."""


class SparkEndedError(OffsetstreamError):
    """Spark's Java process was killed or has exited."""


class LostPartError(OffsetstreamError):
    """Spark lost something that it works with: a process or a temporary file. The same work may succeed again.

    `advice` is for the case that this happens again and again.
    """

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.advice = advice


class EnvironmentNotReadyError(OffsetstreamError):
    """The machine lacks a requirement: Java, a port, disk space, a registry."""
