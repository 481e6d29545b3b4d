"""Watches every file that is created under a folder, through the kernel's events."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from inotify_simple import INotify, flags

_MADE = flags.CREATE | flags.MOVED_TO  # a file that is first written under another name counts twice


class FileWatch:
    """Yields the files created under a folder from now on, in the kernel's order. New folders are watched too.

    Linux only (inotify).
    """

    def __init__(self, folder: Path) -> None:
        self._inotify = INotify()
        self._folders: dict[int, Path] = {}
        self._found: set[Path] = set()  # files in a folder created before its watch: their events may still come
        self._made: deque[Path] = deque()
        self._watch(folder)
        self._made.clear()  # existing files

    def __enter__(self) -> FileWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self._inotify.close()

    def made(self, seconds: float) -> Iterator[Path]:
        """Yield created files until none appears for `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            while self._made:
                yield self._made.popleft()
                deadline = time.monotonic() + seconds
            if time.monotonic() > deadline:
                return
            self._read(max(1, int(1000 * (deadline - time.monotonic()))))

    def _read(self, milliseconds: int) -> None:
        for event in self._inotify.read(timeout=milliseconds):
            if event.wd not in self._folders:
                continue  # the folder was removed
            path = self._folders[event.wd] / event.name
            if event.mask & flags.ISDIR:
                self._watch(path)
            elif path in self._found:
                self._found.remove(path)
            else:
                self._made.append(path)

    def _watch(self, folder: Path) -> None:
        try:
            self._folders[self._inotify.add_watch(str(folder), _MADE)] = folder
            entries = sorted(folder.iterdir())
        except FileNotFoundError:
            return  # it existed for a moment only
        for entry in entries:
            if entry.is_dir():
                self._watch(entry)
            elif entry not in self._found:
                self._found.add(entry)
                self._made.append(entry)
