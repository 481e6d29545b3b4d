"""Rename Java packages in jars, as Databricks' runtime does with Kafka's. Class files store names as text constants."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

_PACKAGE, _PREFIX = b"org/apache/kafka/", b"kafkashaded/"
_NAMES = ((_PACKAGE, _PREFIX + _PACKAGE), (b"org.apache.kafka.", b"kafkashaded.org.apache.kafka."))
_HEADER = 10  # of a class file: magic, versions, number of constants (JVMS 4.1)
_TEXT, _LONG = 1, {5, 6}  # tags of constants (JVMS 4.4); the latter take two places
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}


def shaded(jars: Iterable[Path], folder: Path) -> list[Path]:
    """Return the jars with Kafka's classes, and all references to them, under `kafkashaded`; other jars unchanged."""
    return [_shaded(jar, folder / jar.name) if "kafka" in jar.name else jar for jar in jars]


def _shaded(jar: Path, target: Path) -> Path:
    with zipfile.ZipFile(jar) as old, zipfile.ZipFile(target, "w") as new:
        for entry in old.infolist():
            if not entry.is_dir():
                data = old.read(entry)
                new.writestr(
                    _renamed(entry.filename.encode()).decode(),
                    b"".join(_class(data)) if entry.filename.endswith(".class") else _renamed(data),
                )
    return target


def _class(data: bytes) -> Iterator[bytes]:
    """Yield the parts of a class file, with the names in its constants replaced."""
    (count,) = struct.unpack_from(">H", data, _HEADER - 2)
    yield data[:_HEADER]
    at, number = _HEADER, 1
    while number < count:
        tag = data[at]
        if tag == _TEXT:
            (length,) = struct.unpack_from(">H", data, at + 1)
            text = _renamed(data[at + 3 : at + 3 + length])
            yield struct.pack(">BH", tag, len(text)) + text
            at += 3 + length
        else:
            yield data[at : at + 1 + _SIZES[tag]]
            at += 1 + _SIZES[tag]
        number += 2 if tag in _LONG else 1
    yield data[at:]


def _renamed(text: bytes) -> bytes:
    for old_name, new_name in _NAMES:
        text = text.replace(old_name, new_name)
    return text
