"""Shortens the text of a failure to one page, which names the file with the complete text."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "build" / "failures"
_LINES, _FIRST, _COLUMNS = 60, 15, 300


def end_of(file: Path, *, goes: bool = False) -> str:
    """Return the last lines of a file, and its path. A file that `goes` (deleted after the test) is copied first."""
    if not file.exists():
        return f"{file.name}: there is no such file"
    text = file.read_text(errors="replace")
    if goes:
        FOLDER.mkdir(parents=True, exist_ok=True)
        file = Path(shutil.copy(file, tempfile.mkdtemp(prefix=f"{file.stem}-", dir=FOLDER)))
    lines = _narrow(text.splitlines())
    return "\n".join([f"the last of {len(lines)} lines of {file}:", *lines[-_LINES:]])


def page(text: str, name: str) -> str:
    """Return the text. Of a long text return start and end, and write all of it to a file of that name."""
    lines = text.splitlines()
    if len(lines) <= _LINES and _narrow(lines) == lines:
        return text
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = FOLDER / f"{re.sub(r'[^A-Za-z0-9.]+', '-', name)[-150:]}.txt"
    file.write_text(text, errors="replace")
    narrow = _narrow(lines)
    if len(narrow) > _LINES:
        narrow[_FIRST : len(narrow) + _FIRST - _LINES] = [f"... {len(narrow) - _LINES} lines ..."]
    return "\n".join([*narrow, f"... all of it: {file}"])


def _narrow(lines: list[str]) -> list[str]:
    return [line if len(line) <= _COLUMNS else f"{line[:_COLUMNS]} ... {len(line)} characters" for line in lines]
