"""Damage in a table's folder: find it, and make what is left readable."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder, convert_to_deltalake
from deltalake.exceptions import DeltaError

from offsetstream.errors import TablesError, first_line, one_line
from offsetstream.settings.places import is_remote
from offsetstream.tables.files import Damage, TableFolder
from offsetstream.tables.lookup import open_connection
from offsetstream.tables.path_store.data_file import file_system
from offsetstream.tables.rows import conform
from offsetstream.tables.schema import HISTORY_DAY, TableSchema

ASIDE = "_damaged"  # a folder beside the tables
_ENTRY, _CHECKPOINT = re.compile(r"(\d{20})\.json"), re.compile(r"(\d{20})\.checkpoint\b.*")
_HINT = "_last_checkpoint"  # names the last checkpoint, so that readers need not list the log
_ROWS = 100_000
_Action = Mapping[str, Any]  # what Delta's log says about a data file


class _Log(NamedTuple):
    """What is damaged in Delta's log. `is_lost`: without it, nobody knows which data files the table has.

    `table`: the table, if delta-rs can open it.
    """

    damage: list[Damage]
    is_lost: bool
    table: DeltaTable | None = None


class PathFolder(TableFolder):
    """The files of a table in a folder. `forget` is called when the table was set aside."""

    def __init__(self, root: str, name: str, forget: Callable[[], None] = lambda: None) -> None:
        self.root, self.name = root, name
        self._files = file_system(root)
        self._forget = forget
        self._where = f"{root}/{name}"
        self._aside = f"{ASIDE}/{name}-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"

    def damage(self) -> list[Damage]:
        """Return what is damaged in Delta's log, or else in the data files."""
        with self._translated_errors():
            log = self._log()
            return log.damage or (self._damaged_files(log.table) if log.table is not None else [])

    def empty_entry(self) -> Damage | None:
        """Return the last entry of Delta's log if it is empty."""
        if is_remote(self._where):
            return None
        entries = [file for file in self._listed("_delta_log") if _ENTRY.fullmatch(file.removeprefix("_delta_log/"))]
        last = max(entries, default=None)
        return None if last is None or self._read(last).strip() else Damage(last, "is empty")

    def mend(self) -> bool:
        """Remove what is damaged from the table."""
        log = self._log()
        if log.is_lost:
            return False
        for each in log.damage:
            self._move_aside(each.file)
        if any("checkpoint" in each.file for each in log.damage):
            self._move_aside(f"_delta_log/{_HINT}")
        with self._translated_errors():
            table = DeltaTable(self._where)
            if files := self._damaged_files(table):
                for each in files:
                    self._move_aside(each.file)
                table.repair()
        return True

    def set_aside(self) -> str:
        """Move each file of the table; the log goes first, so that no reader sees a part of the table."""
        files = self._listed("")
        for file in sorted(files, key=lambda file: (not file.startswith("_delta_log/"), file)):
            self._move_aside(file)
        with suppress(OSError, NotImplementedError):  # object stores have no folders
            self._files.delete_dir(self.name)
        self._forget()
        return self._aside

    @property
    def is_aside(self) -> bool:
        """Whether files of this table were moved away."""
        return bool(self._files_aside())

    def _files_aside(self) -> list[str]:
        selector = pafs.FileSelector(ASIDE, recursive=True, allow_not_found=True)
        found = [each.path for each in self._files.get_file_info(selector) if each.is_file]
        return [path for path in found if path.startswith(f"{ASIDE}/{self.name}-")]

    def salvaged(self, schema: TableSchema) -> Iterator[pa.Table]:
        """Return each row once; rows that retention or compaction removed recently may be among them."""
        data = [path for path in self._files_aside() if path.endswith(".parquet") and "/_delta_log/" not in path]
        files = [path for path in data if self._unreadable(path) is None]
        # The rows are copied first: delta-rs cannot write rows that a store of its own still has to read.
        copy = tempfile.TemporaryFile()  # noqa: SIM115 - closed by _copied
        with pa.ipc.new_stream(copy, schema.arrow) as target:
            for part in self._distinct(files, schema) if files else ():
                target.write_table(part)
        copy.seek(0)
        return _copied(copy)

    def _distinct(self, files: list[str], schema: TableSchema) -> Iterator[pa.Table]:
        # The folder of a file names its day.
        day = pads.partitioning(pa.schema([(HISTORY_DAY, pa.date32())]), flavor="hive")
        rows = pads.dataset(files, schema.arrow, format="parquet", filesystem=self._files, partitioning=day)
        key = ", ".join(f'"{name}"' for name in schema.row_key)
        with open_connection() as connection:
            connection.register("salvaged", rows)
            reader = connection.sql(f"SELECT DISTINCT ON ({key}) * FROM salvaged").to_arrow_reader(_ROWS)  # noqa: S608 - ours
            for batch in reader:
                yield conform(pa.Table.from_batches([batch]), schema)

    def _log(self) -> _Log:
        """Check the entries that a reader of the table needs: the last checkpoint, and all commits since.

        Only a log that delta-rs cannot open is checked: it may have forms that this function does not know.
        """
        with suppress(DeltaError, OSError):
            table, empty = DeltaTable(self._where), self.empty_entry()
            return _Log([empty] if empty else [], is_lost=False, table=table)
        names = [file.removeprefix("_delta_log/") for file in self._listed("_delta_log")]
        entries = {int(found[1]): name for name in names if (found := _ENTRY.fullmatch(name))}
        checkpoints = {int(found[1]): name for name in names if (found := _CHECKPOINT.fullmatch(name))}
        if not entries and not checkpoints:
            is_lost = any(file.endswith(".parquet") for file in self._listed(""))
            return _Log([Damage("_delta_log", "is empty")] if is_lost else [], is_lost)
        damage, start = list[Damage](), 0
        for version in sorted(checkpoints, reverse=True):
            file = checkpoints[version]
            is_parquet = file.endswith(".parquet")
            what = self._unreadable(self._path(f"_delta_log/{file}")) if is_parquet else self._unreadable_entry(file)
            if what is None:
                start = version + 1
                break
            damage.append(Damage(f"_delta_log/{file}", what))
        if not damage and self._named_by_hint(names) not in {None, *checkpoints}:
            damage.append(Damage(f"_delta_log/{_HINT}", "names a checkpoint that is missing"))
        last = max(entries.keys() | checkpoints.keys())
        lost = [version for version in range(start, last + 1) if version not in entries]
        broken = {
            version: what
            for version in range(start, last + 1)
            if version in entries and (what := self._unreadable_entry(entries[version]))
        }
        damage += [Damage(f"_delta_log/{version:020}.json", "is missing") for version in lost[:1]]
        damage += [Damage(f"_delta_log/{entries[version]}", what) for version, what in broken.items()]
        is_lost = bool(lost) or not broken.keys() <= {last} or (start == 0 and set(broken) == {0})
        return _Log(damage, is_lost)

    def _named_by_hint(self, names: list[str]) -> int | None:
        if _HINT not in names:
            return None
        with suppress(ValueError, KeyError, TypeError, OSError):  # readers ignore a hint that they cannot read
            return int(json.loads(self._read(f"_delta_log/{_HINT}"))["version"])
        return None

    def _unreadable_entry(self, name: str) -> str | None:
        try:
            lines = [line for line in self._read(f"_delta_log/{name}").splitlines() if line.strip()]
        except OSError as error:
            return _bad_disk(error)
        try:
            is_whole = all(isinstance(json.loads(line), dict) for line in lines)
        except ValueError:
            is_whole = False
        return "is empty" if not lines else None if is_whole else "is not JSON"

    def _damaged_files(self, table: DeltaTable) -> list[Damage]:
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        found = _damaged(actions, self._wrong_size, self._unreadable_by_arrow)
        if not found and _read_by_delta_rs(table) is not None:  # it does not say in which file
            return _damaged(actions, self._unreadable_by_delta_rs)
        return found

    def _wrong_size(self, action: _Action) -> str | None:
        try:
            info = self._files.get_file_info(self._path(action["path"]))
        except OSError as error:
            return _bad_disk(error)
        if not info.is_file:
            return "is missing"
        size = action["size_bytes"]
        return None if info.size == size else f"has {info.size:,} of {size:,} bytes"

    def _unreadable_by_arrow(self, action: _Action) -> str | None:
        return self._unreadable(self._path(action["path"]))

    def _unreadable_by_delta_rs(self, action: _Action) -> str | None:
        with tempfile.TemporaryDirectory() as folder, self._files.open_input_file(self._path(action["path"])) as file:
            with (Path(folder) / "part.parquet").open("wb") as copy:
                shutil.copyfileobj(file, copy)
            try:
                convert_to_deltalake(folder)
            except DeltaError as error:
                return f"cannot be read ({first_line(error)})"
            return _read_by_delta_rs(DeltaTable(folder))

    def _unreadable(self, path: str) -> str | None:
        """Return why a Parquet file cannot be read; None if every page can."""
        try:
            with self._files.open_input_file(path) as file:
                for _ in pq.ParquetFile(file).iter_batches():
                    pass
        except (pa.ArrowException, OSError, ValueError) as error:
            if os.strerror(errno.EACCES) in str(error):
                raise
            return f"cannot be read ({one_line(error)})"
        return None

    def _read(self, file: str) -> bytes:
        with self._files.open_input_file(self._path(file)) as opened:
            found: bytes = opened.read()
            return found

    def _listed(self, folder: str) -> list[str]:
        """Return the files in a folder of the table, relative to the table."""
        place = self._path(folder).rstrip("/")
        selector = pafs.FileSelector(place, recursive=True, allow_not_found=True)
        with self._translated_errors():
            found = self._files.get_file_info(selector)
        return [each.path.removeprefix(f"{self.name}/") for each in found if each.is_file]

    def _move_aside(self, file: str) -> None:
        with suppress(FileNotFoundError):  # that is the damage
            self._files.move(self._path(file), f"{self._aside}/{file}")

    def _path(self, file: str) -> str:
        return f"{self.name}/{file}"

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        # Not `translated_errors`, which asks this class what is damaged.
        try:
            yield
        except (DeltaError, OSError) as error:
            raise TablesError(f"cannot read the table {self._where}: {one_line(error)}") from error


def _bad_disk(error: OSError) -> str:
    """Return what a failing disk says of a file. Raises `error` if it has another reason, such as a missing right."""
    said = os.strerror(errno.EIO)
    if said not in str(error):
        raise error
    return f"cannot be read ({said})"


def _damaged(actions: Iterable[_Action], *checks: Callable[[_Action], str | None]) -> list[Damage]:
    """Return the data files with which one of the checks finds something wrong."""
    found = ((action, next(filter(None, (check(action) for check in checks)), None)) for action in actions)
    return [Damage(action["path"], what, action.get("num_records")) for action, what in found if what is not None]


def _read_by_delta_rs(table: DeltaTable) -> str | None:
    """Return why delta-rs cannot read all rows of a table; None if it can. It finds damage that Arrow does not."""
    try:
        for _ in QueryBuilder().register("rows", table).execute("SELECT * FROM rows"):
            pass
    except Exception as error:  # delta-rs has no class for these
        return f"cannot be read ({one_line(error)})"
    return None


def _copied(copy: IO[bytes]) -> Iterator[pa.Table]:
    with copy, pa.ipc.open_stream(copy) as reader:
        for batch in reader:
            yield pa.Table.from_batches([batch])
