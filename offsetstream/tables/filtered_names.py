"""Names that the tables' filters exclude, for commands that look up a name or print a list that is not complete."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from offsetstream.settings.places import is_utf8
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.names import OFFSETS_PARTITIONS
from offsetstream.tables.store import Store


@dataclass(frozen=True)
class FilteredNames:
    """The distinct filters of the offsets partitions, as text: several while a change of the filters is loading."""

    filters: tuple[str | None, ...]

    @classmethod
    def of(cls, store: Store) -> FilteredNames:
        """Return the filters of the tables."""
        rows = Lookup(store).rows(OFFSETS_PARTITIONS, ["filters"], distinct=True)
        return cls(tuple(row["filters"] for row in rows))

    def groups(self, names: Collection[str]) -> list[str]:
        """Return the groups among `names` that every offsets partition filters, sorted."""
        return self._among(names, of_groups=True)

    def topics(self, names: Collection[str]) -> list[str]:
        """Return the topics among `names` whose offsets every offsets partition filters, sorted."""
        return self._among(names, of_groups=False)

    @property
    def note(self) -> str | None:
        """A line for a result that the filters make incomplete; None without filters."""
        given = set(filter(None, self.filters))
        if not given:
            return None
        from offsetstream.tables.filters import Filters  # noqa: PLC0415 - of Arrow, and most tables have none

        return f"the filters of the tables exclude {'; or '.join(sorted(str(Filters.of(text)) for text in given))}"

    def _among(self, names: Collection[str], *, of_groups: bool) -> list[str]:
        possible = sorted(name for name in names if is_utf8(name))
        if not possible or not self.filters or not all(self.filters):
            return []
        import pyarrow as pa  # noqa: PLC0415 - most tables have no filters

        from offsetstream.tables.filters import Filters  # noqa: PLC0415 - likewise

        array = pa.array(possible, pa.string())
        results = [
            (each.filters_groups if of_groups else each.filters_topics)(array).to_pylist()
            for each in map(Filters.of, self.filters)
        ]
        return [name for name, *is_filtered in zip(possible, *results, strict=True) if all(is_filtered)]
