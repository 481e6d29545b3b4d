"""Tables and views for Python: rows as Arrow, from which pandas, Polars and DuckDB make their own without a copy."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from os import PathLike, fspath
from typing import TYPE_CHECKING

from offsetstream.tables.location import store_at
from offsetstream.tables.lookup import Lookup, Where
from offsetstream.tables.schema import all_schemas
from offsetstream.tables.store import Store
from offsetstream.views.reader import ViewReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Wanted = str | Collection[str] | None
_INSIDE = "in_coordinator_partition"


def open_tables(
    path: str | PathLike[str], spark: SparkSession | None = None, *, max_age: timedelta | None = None
) -> Tables:
    """Return the tables at a folder, a URI or, for `spark` to read them, in `catalog.schema`; UsageError for others.

    Each is opened when it is first read. What nobody looked at for `max_age` is stale (`is_stale` of the views);
    None: as the tables say how often the job means to look; `timedelta.max`: nothing is.
    """
    store = store_at(fspath(path))
    return Tables(store if spark is None else store.read_by(spark), max_age)


class Tables:
    """The tables of one cluster, each as of the moment at which it is first read.

    Rows of state tables are those of the groups' own offsets partitions, as coordinators answer; `read` gives
    those left behind by a change of the partition count, too. All methods raise TablesError where a table cannot be
    read. `docs/tables.md` has the columns.
    """

    def __init__(self, store: Store, max_age: timedelta | None = None) -> None:
        self._lookup = Lookup(store)
        self._views = ViewReader(store)
        if max_age is not None:
            self._views.set_max_age(None if max_age == timedelta.max else max_age.total_seconds())

    def freshness(self) -> pa.Table:
        """Return as of when each offsets partition is known, and whether that is too long ago to tell of now."""
        return self.view("freshness")

    def committed_offsets(self, *, group: Wanted = None, topic: Wanted = None) -> pa.Table:
        """Return the committed offsets of the groups and topics, or of all."""
        return self._of_groups("committed_offsets", group_id=group, topic=topic)

    def groups(self, *, group: Wanted = None) -> pa.Table:
        """Return the groups."""
        return self._of_groups("groups", group_id=group)

    def group_members(self, *, group: Wanted = None) -> pa.Table:
        """Return the members of the groups."""
        return self._of_groups("group_members", group_id=group)

    def member_assignments(self, *, group: Wanted = None, topic: Wanted = None) -> pa.Table:
        """Return the partitions that members have, are to get, or are to give up."""
        return self._of_groups("member_assignments", group_id=group, topic=topic)

    def member_subscriptions(self, *, group: Wanted = None) -> pa.Table:
        """Return what members subscribe to."""
        return self._of_groups("member_subscriptions", group_id=group)

    def offset_commits(self, *, group: Wanted = None, topic: Wanted = None) -> pa.Table:
        """Return the history of the groups' commits and offset tombstones."""
        return self.read("offset_commits", group_id=group, topic=topic)

    def read(self, table: str, **wanted: Wanted | Collection[int]) -> pa.Table:
        """Return the rows of any table whose columns have one of the values that are wanted, None being all.

        KeyError for a table or a column that there is not.
        """
        columns = all_schemas()[table].column_names
        for column in wanted:
            if column not in columns:
                raise KeyError(f"{table} has no column {column}")
        return self._lookup.arrow(table, _where(wanted))

    def view(self, view: str, *, at: datetime | None = None, **wanted: Wanted | Collection[int]) -> pa.Table:
        """Return the rows of a view (`docs/views.md` has them all), as `read` does.

        `at` is the instant of those that have one, such as `offsets_at`; UsageError where it is missing or has no zone.
        """
        return self._views.arrow(view, _where(wanted), at=at)

    def _of_groups(self, table: str, **wanted: Wanted) -> pa.Table:
        return self.read(table, **wanted, **{_INSIDE: [True]})


def _where(wanted: Mapping[str, Wanted | Collection[int]]) -> Where:
    return {name: [each] if isinstance(each, str) else each for name, each in wanted.items()}
