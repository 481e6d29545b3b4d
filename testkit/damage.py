"""Damages files of a table, like failing disks and the lifecycle rules of object stores."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from deltalake import DeltaTable


def data_files(table: Path) -> list[Path]:
    """Return the data files of the table's current version."""
    return sorted(Path(unquote(file)) for file in DeltaTable(str(table)).file_uris())


def lose_file(table: Path) -> None:
    data_files(table)[0].unlink()


def cut_file(table: Path) -> None:
    file = data_files(table)[0]
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def overwrite_page(table: Path) -> None:
    file = data_files(table)[0]
    content = bytearray(file.read_bytes())
    content[4:40] = bytes(36)  # the header of the first page
    file.write_bytes(content)


def cut_last_entry(table: Path) -> None:
    entry = _entries(table)[-1]
    entry.write_bytes(entry.read_bytes()[:40])


def empty_last_entry(table: Path) -> None:
    _entries(table)[-1].write_bytes(b"")


def lose_entries(table: Path) -> None:
    """Keep only the last entry, like a rule that deletes old files, checkpoints included."""
    last = _entries(table)[-1]
    for file in (table / "_delta_log").iterdir():
        if file != last:
            file.unlink()


def cut_checkpoint(table: Path) -> None:
    DeltaTable(str(table)).create_checkpoint()
    file = max((table / "_delta_log").glob("*.checkpoint.parquet"))
    file.write_bytes(file.read_bytes()[:100])


OF_FILES = (lose_file, cut_file, overwrite_page)
OF_LOG = (cut_last_entry, empty_last_entry, lose_entries, cut_checkpoint)


def _entries(table: Path) -> list[Path]:
    return sorted((table / "_delta_log").glob("*.json"))
