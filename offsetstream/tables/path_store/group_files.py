"""Which file of a state table has which group. So a batch opens and rewrites only the files of its groups.

Rows move by whole groups. The groups that a batch changes go into hot files together, with those that changed lately.
The other rows of the files that it rewrites go into cold files. So the next batch, which mostly has the same groups,
opens a few small files, and nobody opens the cold ones.

Files are found by hashes of their groups; a collision only opens a file too many. After another writer's commit, the
files that are new are read once, for their groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from deltalake import DeltaTable

from offsetstream.coordinator.reduction import GROUP
from offsetstream.tables.files import NewFile
from offsetstream.tables.matching import with_all_columns
from offsetstream.tables.path_store.data_file import DataFile, FileReader
from offsetstream.tables.rows import Size

At = tuple[str, int]  # a table's id and version
Hashes = npt.NDArray[np.uint64]
HOT, COLD = "hot", "cold"  # beginnings of file names: after a restart, they say which groups changed lately
_HOT_ROWS, _COLD_ROWS = 65_536, 4_096  # of a file, which may have more for the sake of its last group
_FILES = 1_000  # cold files that a large table aims at; it may have twice as many
_LATELY = 8  # writes after which a group that did not change again is cold
_SMALL, _MANY_SMALL = 8, 8  # a file with an eighth of the rows is small; with more such files, they become one
_UNSORTED = 64  # files whose hashes are searched one by one; then they are sorted in
_KEPT_BYTES = 16 << 20  # of rows that stay in memory
_WHOLE_BYTES = 256 << 10  # of a file that is read whole, to be kept
_BUFFER_ROWS, _BUFFER_BYTES = 500_000, 128 << 20  # that are sorted at once when files are written
_MIX = np.uint64(0x9E3779B97F4A7C15)


def hashes_of(rows: pa.Table) -> Hashes:
    """Return a hash of the group of each row, from its columns `offsets_partition` and `group_id`."""
    from pandas.util import hash_array  # noqa: PLC0415 - only a job needs it, and only its extra brings pandas

    partitions = rows["offsets_partition"].fill_null(-1).to_numpy().astype(np.uint64)
    ids = rows["group_id"].combine_chunks().dictionary_encode(null_encoding="encode")
    texts = np.array([each or "" for each in ids.dictionary.to_pylist()], dtype=object)
    of_texts: Hashes = hash_array(texts, categorize=False) if len(texts) else _nothing()
    found: Hashes = of_texts[ids.indices.to_numpy()] ^ (partitions + np.uint64(1)) * _MIX
    return found


def cold_rows(rows: int) -> int:
    """Return how many rows a cold file has in a table of so many rows."""
    return max(_COLD_ROWS, rows // _FILES)


@dataclass(frozen=True)
class StoredFile:
    """A file of the table: its path as in the log, its bytes and its rows."""

    path: str
    size: int
    rows: int

    @property
    def is_hot(self) -> bool:
        """Whether it has groups that changed lately."""
        return self.path.startswith(HOT)

    def is_small(self, enough: int) -> bool:
        """Whether it has few rows for a file of its kind; a cold one has `enough`."""
        return self.rows * _SMALL < (_HOT_ROWS if self.is_hot else enough)


class WrittenFile(NamedTuple):
    """A file to be committed, its number of rows, and the hashes of its groups; of a hot one also the rows, if few."""

    new: NewFile
    rows: int
    hashes: Hashes
    kept: pa.Table | None


class GroupFiles:
    """The files of one state table by group. One thread uses it at a time."""

    def __init__(self) -> None:
        self._seen: At | None = None
        self._files: dict[int, StoredFile] = {}  # by number
        self._hashes, self._numbers = _nothing(), np.zeros(0, np.int32)  # sorted by hash
        self._unsorted: list[tuple[int, Hashes]] = []
        self._next = 0
        self._lately, self._when = _nothing(), np.zeros(0, np.int64)  # groups that changed, and at which write
        self._writes = 0
        # Rows of files that the next batch may need too, with their bytes, last used last.
        self._kept: dict[str, tuple[pa.Table, int]] = {}

    def look(self, now: At, table: DeltaTable, reader: FileReader) -> None:
        """Learn of the files of this version of the table."""
        if now == self._seen:
            return
        actions = pa.table(table.get_add_actions()).select(["path", "size_bytes"]).to_pylist()
        paths = {each["path"]: each["size_bytes"] for each in actions}
        self._drop(number for number, file in self._files.items() if file.path not in paths)
        known = {file.path for file in self._files.values()}
        for path in paths.keys() - known:
            found, rows = _nothing(), 0
            for part in reader.rows(path, GROUP):
                found, rows = np.union1d(found, hashes_of(part)), rows + part.num_rows
            self._add(StoredFile(path, paths[path], rows), found)
        self._sort_in()
        self._seen = now

    def of(self, groups: Hashes) -> list[StoredFile]:
        """Return the files that may have rows of the groups."""
        wanted = np.unique(groups)
        first, end = np.searchsorted(self._hashes, wanted, "left"), np.searchsorted(self._hashes, wanted, "right")
        counts = end - first
        at = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        numbers = set(np.unique(self._numbers[at]).tolist())
        numbers |= {number for number, hashes in self._unsorted if _has_any(hashes, wanted)}
        return [self._files[number] for number in sorted(numbers) if number in self._files]

    def rows(
        self, reader: FileReader, files: Iterable[StoredFile], columns: Sequence[str] = ()
    ) -> Iterator[tuple[StoredFile, pa.Table]]:
        """Yield the rows of files, part by part; all columns, or those in `columns`."""
        for file in files:
            if file.path not in self._kept and file.size > _WHOLE_BYTES:
                for part in reader.rows(file.path, columns):
                    yield file, part
                continue
            if file.path in self._kept:  # perhaps before somebody added a column
                rows = with_all_columns(self._kept.pop(file.path)[0], reader.schema)
            else:
                rows = pa.concat_tables([reader.schema.empty_table(), *reader.rows(file.path)])
            self._keep(file, rows)
            yield file, rows.select(list(columns)) if columns else rows

    def _keep(self, file: StoredFile, rows: pa.Table) -> None:
        self._kept[file.path] = rows, rows.nbytes
        total = sum(size for _, size in self._kept.values())
        while len(self._kept) > 1 and total > _KEPT_BYTES:
            _, size = self._kept.pop(next(iter(self._kept)))
            total -= size

    def _with_small(self, files: Collection[StoredFile]) -> list[StoredFile]:
        """Return the files, and the small ones of a kind if there are many: all become a few larger ones."""
        added, paths = list[StoredFile](), {file.path for file in files}
        enough = cold_rows(self._row_count)
        for is_hot in (True, False):
            of_kind = (file for file in self._files.values() if file.is_hot == is_hot and file.path not in paths)
            small = [file for file in of_kind if file.is_small(enough)]
            added += small if len(small) > _MANY_SMALL else []
        return [*files, *added]

    def changed(self, groups: Hashes) -> list[StoredFile]:
        """Note that a write changes the groups, and return the files that it must rewrite."""
        self._writes += 1
        groups = np.unique(groups)
        stay = (self._writes - self._when < _LATELY) & ~np.isin(self._lately, groups)
        hashes = np.concatenate([self._lately[stay], groups])
        when = np.concatenate([self._when[stay], np.full(len(groups), self._writes)])
        order = np.argsort(hashes)
        self._lately, self._when = hashes[order], when[order]
        return self._with_small(self.of(groups))

    def rewritten(self, where: str, rows: Iterable[tuple[StoredFile | None, pa.Table]]) -> FilesOfGroups:
        """Write rows into new files, hot or cold. Each part comes with the file that had it, None if it is new."""
        new = FilesOfGroups(where, self._row_count)
        for file, part in rows:
            hashes = hashes_of(part)
            is_hot = _is_in(hashes, self._lately)
            if file is not None and file.is_hot and (~is_hot).sum() * 2 < new.cold_rows:
                is_hot[:] = True  # a few idle groups wait until there are more
            new.write(part, hashes, is_hot)
        new.close()
        return new

    def exchanged(self, now: At, gone: Collection[StoredFile], new: FilesOfGroups, before: int) -> None:
        """Note the commit that removed some files and added new ones, if it followed the version `before`."""
        if now[1] != before + 1:
            return  # the next look finds the files of the commits between
        paths = {file.path for file in gone}
        self._drop(number for number, file in self._files.items() if file.path in paths)
        for each in new.written:
            file = StoredFile(each.new.path, each.new.size, each.rows)
            self._add(file, each.hashes)
            if each.kept is not None:
                self._keep(file, each.kept)
        if len(self._unsorted) > _UNSORTED:
            self._sort_in()
        self._seen = now

    @property
    def _row_count(self) -> int:
        return sum(file.rows for file in self._files.values())

    def _add(self, file: StoredFile, hashes: Hashes) -> None:
        number, self._next = self._next, self._next + 1
        self._files[number] = file
        self._unsorted.append((number, hashes))
        if file.is_hot and self._seen is None:  # found at a start
            self._lately = np.union1d(self._lately, hashes)
            self._when = np.full(len(self._lately), self._writes)

    def _drop(self, numbers: Iterable[int]) -> None:
        for number in list(numbers):
            path = self._files.pop(number).path
            self._kept.pop(path, None)
        self._unsorted = [each for each in self._unsorted if each[0] in self._files]

    def _sort_in(self) -> None:
        """Sort the hashes of all present files; those of files that are gone are left out."""
        alive = np.zeros(self._next, bool)
        alive[list(self._files)] = True
        stay = alive[self._numbers]
        hashes = [self._hashes[stay], *(hashes for _, hashes in self._unsorted)]
        numbers = [self._numbers[stay], *(np.full(len(own), number, np.int32) for number, own in self._unsorted)]
        self._hashes, self._numbers = np.concatenate(hashes), np.concatenate(numbers)
        order = np.argsort(self._hashes, kind="stable")
        self._hashes, self._numbers, self._unsorted = self._hashes[order], self._numbers[order], []


class FilesOfGroups:
    """New files of a state table of about `rows` rows, hot and cold ones. Each has whole groups, in order."""

    def __init__(self, where: str, rows: int) -> None:
        self.cold_rows = cold_rows(rows)
        self._kinds = {HOT: _Pieces(where, HOT, _HOT_ROWS), COLD: _Pieces(where, COLD, self.cold_rows)}

    def write_cold(self, rows: pa.Table) -> None:
        """Write rows to cold files."""
        self.write(rows, hashes_of(rows), np.zeros(rows.num_rows, bool))

    def write(self, rows: pa.Table, hashes: Hashes, is_hot: npt.NDArray[np.bool_]) -> None:
        """Write rows, each to a hot or to a cold file."""
        for kind, chosen in ((HOT, is_hot), (COLD, ~is_hot)):
            if chosen.any():
                self._kinds[kind].add(rows.filter(pa.array(chosen)), hashes[chosen])

    def close(self) -> None:
        """Finish the last files."""
        for kind in self._kinds.values():
            kind.flush()

    @property
    def files(self) -> list[NewFile]:
        """The files, to be committed."""
        return [each.new for each in self.written]

    @property
    def written(self) -> list[WrittenFile]:
        """The files, with what the next batch needs of them."""
        return [each for kind in self._kinds.values() for each in kind.written]


class _Pieces:
    """Files of one kind. Rows are sorted in memory, about half a million at once."""

    def __init__(self, where: str, kind: str, rows: int) -> None:
        self._where, self._kind, self._enough = where, kind, rows
        self._waiting, self._size = list[tuple[pa.Table, Hashes]](), Size(0, 0)
        self.written = list[WrittenFile]()
        self._kept_bytes = 0

    def add(self, rows: pa.Table, hashes: Hashes) -> None:
        self._waiting.append((rows, hashes))
        self._size = Size(self._size.rows + rows.num_rows, self._size.bytes + rows.nbytes)
        if self._size.parts(_BUFFER_ROWS, _BUFFER_BYTES) > 1:
            self.flush()

    def flush(self) -> None:
        if not self._waiting:
            return
        rows = pa.concat_tables([rows for rows, _ in self._waiting])
        hashes = np.concatenate([hashes for _, hashes in self._waiting])
        self._waiting, self._size = [], Size(0, 0)
        order = np.lexsort([*_within_a_group(rows), hashes, rows["offsets_partition"].to_numpy()])
        rows, hashes = rows.take(pa.array(order)), hashes[order]
        ends = np.append(np.flatnonzero(hashes[1:] != hashes[:-1]) + 1, len(hashes))  # of groups
        at = 0
        while at < len(hashes):
            # The last file takes the rest rather than leave a small one.
            end = len(hashes) if len(hashes) - at < 1.5 * self._enough else int(ends[ends >= at + self._enough][0])
            self._write(rows.slice(at, end - at), np.unique(hashes[at:end]))
            at = end

    def _write(self, rows: pa.Table, hashes: Hashes) -> None:
        file = DataFile(self._where, None, self._kind)
        file.write(rows)
        new = file.close()
        if new is None:
            return
        is_kept = self._kind == HOT and self._kept_bytes + rows.nbytes <= _KEPT_BYTES
        self._kept_bytes += rows.nbytes if is_kept else 0
        self.written.append(WrittenFile(new, rows.num_rows, hashes, rows if is_kept else None))


def _within_a_group(rows: pa.Table) -> list[npt.NDArray[Any]]:
    """Return by what to order the rows of a group: numbers in order take half the bytes."""
    return [rows[name].fill_null(-1).to_numpy() for name in ("partition",) if name in rows.column_names]


def _nothing() -> Hashes:
    return np.zeros(0, np.uint64)


def _is_in(hashes: Hashes, known: Hashes) -> npt.NDArray[np.bool_]:
    """Return which of the hashes are among `known`, which is sorted."""
    if not len(known):
        return np.zeros(len(hashes), bool)
    at = np.searchsorted(known, hashes)
    found: npt.NDArray[np.bool_] = known[np.minimum(at, len(known) - 1)] == hashes
    return found


def _has_any(hashes: Hashes, wanted: Hashes) -> bool:
    return bool(_is_in(wanted, hashes).any())
