"""What the tables leave out by their filters, for whoever asks them for a name or takes a part for the whole."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from offsetstream.tables.location import is_utf8
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.names import OFFSETS_PARTITIONS
from offsetstream.tables.store import Store


@dataclass(frozen=True)
class FilteredNames:
    """The filters of all offsets partitions, as their rows have them: several while a change of them is loaded."""

    filters: tuple[str | None, ...]

    @classmethod
    def of(cls, store: Store) -> FilteredNames:
        """Return what the tables leave out."""
        rows = Lookup(store).rows(OFFSETS_PARTITIONS, ["filters"], distinct=True)
        return cls(tuple(row["filters"] for row in rows))

    def groups(self, names: Collection[str]) -> list[str]:
        """Return those of the groups that every offsets partition leaves out, in order."""
        return self._among(names, of_groups=True)

    def topics(self, names: Collection[str]) -> list[str]:
        """Return those of the topics whose offsets every offsets partition leaves out, in order."""
        return self._among(names, of_groups=False)

    @property
    def note(self) -> str | None:
        """A line for an answer that is a part only; None where nothing is left out."""
        given = set(filter(None, self.filters))
        if not given:
            return None
        from offsetstream.tables.filters import Filters  # noqa: PLC0415 - of Arrow, and most tables have none

        return f"the filters of the tables leave out {'; or '.join(sorted(str(Filters.of(text)) for text in given))}"

    def _among(self, names: Collection[str], *, of_groups: bool) -> list[str]:
        asked = sorted(name for name in names if is_utf8(name))
        if not asked or not self.filters or not all(self.filters):
            return []
        import pyarrow as pa  # noqa: PLC0415 - most tables have no filters

        from offsetstream.tables.filters import Filters  # noqa: PLC0415 - likewise

        of_name = pa.array(asked, pa.string())
        told = [
            (each.filters_groups if of_groups else each.filters_topics)(of_name).to_pylist()
            for each in map(Filters.of, self.filters)
        ]
        return [name for name, *found in zip(asked, *told, strict=True) if all(found)]
