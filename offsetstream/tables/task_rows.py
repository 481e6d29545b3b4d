"""Rows of tables that Spark tasks make. The driver commits them.

Tasks write the rows to files of the table. Spark's own write would pass each value through rows of the JVM, which for
millions of commits takes most of a load's time. Spark would also commit itself, and on S3 Spark and delta-rs do not see
each other's commits (`path_store/snapshot.py`). If only Spark may write a table, the tasks give it the rows packed:
some thousand rows as one Arrow stream.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from offsetstream.tables.files import NewFile
from offsetstream.tables.names import RECORD_TABLES
from offsetstream.tables.rows import conform, to_bytes, with_constant_columns
from offsetstream.tables.schema import is_history, load_schema
from offsetstream.tables.tally import Entry, Tally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PACKED_BYTES = 4 << 20  # the JVM would need most of the time for single rows


class TaskWriter(ABC):
    """Takes rows of one table inside a Spark task (it is pickled), and counts what the ledger counts."""

    def __init__(self, name: str, signature: Mapping[str, Any]) -> None:
        self._schema = load_schema(name)
        self._signature = signature if is_history(name) else {}
        self._tally = Tally(name) if name in RECORD_TABLES else None
        self._count = 0

    def write(self, rows: pa.Table) -> list[bytes]:
        """Take rows, which have all columns of the table except the three of `SIGNATURE`.

        Returns them packed if Spark is to carry them.
        """
        if not rows.num_rows:
            return []
        rows = conform(with_constant_columns(rows, self._signature), self._schema)
        self._count += rows.num_rows
        if self._tally is not None:
            self._tally.add(rows)
        return self._put(rows)

    def close(self) -> dict[str, Any]:
        """Finish, and return the task's report about the table as JSON, for `TaskRows.of`."""
        new, entries = self._finished(), [] if self._tally is None else self._tally.entries
        return {"rows": self._count, "counted": [*map(asdict, entries)], "file": new and asdict(new)}

    @abstractmethod
    def _put(self, rows: pa.Table) -> list[bytes]: ...

    @abstractmethod
    def _finished(self) -> NewFile | None: ...


class PackingWriter(TaskWriter):
    """Packs the rows for Spark."""

    def _put(self, rows: pa.Table) -> list[bytes]:
        at_once = max(1, rows.num_rows * _PACKED_BYTES // max(1, rows.nbytes))
        return [to_bytes(rows.slice(at, at_once)) for at in range(0, rows.num_rows, at_once)]

    def _finished(self) -> None:
        return None


@dataclass(frozen=True)
class TaskRows:
    """The rows of one table that tasks made.

    `count`: their number. `entries`: for the ledger. `files`: those that have them, or else `packed` has them in its
    column `rows`.
    """

    count: int = 0
    entries: list[Entry] = field(default_factory=list)
    files: list[NewFile] = field(default_factory=list)
    packed: DataFrame | None = None

    @classmethod
    def of(cls, reports: Iterable[Mapping[str, Any]], packed: DataFrame | None = None) -> TaskRows:
        """Return the rows that the tasks' reports are about."""
        reports = list(reports)
        return cls(
            sum(report["rows"] for report in reports),
            [Entry(**each) for report in reports for each in report["counted"]],
            [NewFile(**report["file"]) for report in reports if report["file"] is not None],
            packed,
        )

    def unpacked(self, schema: pa.Schema) -> DataFrame:
        """Return the packed rows, which have these columns."""
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - only Spark users need it

        assert self.packed is not None  # noqa: S101 - of a store whose tasks pack rows
        return self.packed.select("rows").mapInArrow(_unpack, from_arrow_schema(schema))


def _unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for rows in batch["rows"].to_pylist():
            yield from pa.ipc.open_stream(rows)
