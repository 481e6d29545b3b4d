"""Format records: bytes that are UTF-8 as text, all others in base64 with a mark."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from offsetstream.cli.times import time_text

if TYPE_CHECKING:
    from offsetstream.cluster.records import Record

_LONGEST = 200  # characters of a cell in text
Row = dict[str, Any]


def record_row(record: Record, *, with_values: bool, output_format: str) -> Row:
    """Return the cells of a record. Without `with_values` they have only the size of the value."""
    is_text = output_format == "text"
    row: Row = {
        "offset": record.offset,
        "timestamp": time_text(record.timestamp_ms),
        "timestamp_ms": record.timestamp_ms,
        "timestamp_type": record.timestamp_type,
        "leader_epoch": record.leader_epoch,
        "key_size": _size(record.key),
        "value_size": _size(record.value),
        **_cells("key", record.key, is_text=is_text),
        **(_cells("value", record.value, is_text=is_text) if with_values else {}),
    }
    headers = [{"name": name, **_cells("value", value, is_text=False)} for name, value in record.headers]
    if is_text:
        texts = [(each["name"], _marked(each["value"], each["value_encoding"])) for each in headers]
        row["headers"] = _cut(", ".join(name if text is None else f"{name}={text}" for name, text in texts)) or None
    else:
        row["headers"] = headers if output_format == "json" else json.dumps(headers, ensure_ascii=False)
    return row


def _cells(name: str, data: bytes | None, *, is_text: bool) -> Row:
    text, encoding = _readable(data)
    return {name: _cut(_marked(text, encoding)) if is_text else text, f"{name}_encoding": encoding}


def _readable(data: bytes | None) -> tuple[str | None, str | None]:
    if data is None:
        return None, None
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return b64encode(data).decode(), "base64"


def _marked(text: str | None, encoding: str | None) -> str | None:
    return f"base64:{text}" if encoding == "base64" else text


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _size(data: bytes | None) -> int | None:
    return None if data is None else len(data)
