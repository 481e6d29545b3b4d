"""A model of merges in plain Python, and random merges: every engine must give the same result as the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pyarrow as pa

from offsetstream.tables.schema import DELETED, TableSchema
from offsetstream.tables.store import Merge
from offsetstream.tables.transaction import BatchId

Row = dict[str, Any]
HOSTILE = ["", " ", "\0", "a\0b", "'", "''", '"', "\\", "a\nb", "\r\n", "null", "NULL", "%", "grüppe", "😀", "';--"]
PARTITIONS = (0, 1, 2)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Step:
    """One merge: its source rows with `_deleted`, and in `only` their partitions."""

    rows: list[Row]
    batch: BatchId
    only: tuple[int, ...] = ()

    def merge(self, schema: TableSchema, *, newer_only: bool) -> Merge:
        condition = f"offsets_partition IN ({', '.join(map(str, self.only))})" if self.only else None
        return Merge(schema, newer_only=newer_only, replace_where=condition)


@dataclass
class MergeModel:
    """A table as a dictionary, and the version of the last merged batch."""

    schema: TableSchema
    newer_only: bool = False
    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)
    done: int = -1

    def apply(self, step: Step) -> None:
        if not step.batch.is_load:
            if step.batch.version <= self.done:
                return
            self.done = step.batch.version
        self.rows = {key: row for key, row in self.rows.items() if row["offsets_partition"] not in step.only}
        for row in step.rows:
            self._merge_row(row)

    def _merge_row(self, row: Row) -> None:
        key = self._key(row)
        present = self.rows.get(key)
        if present is not None and self.newer_only and _position(row) < _position(present):
            return
        if row[DELETED]:
            self.rows.pop(key, None)
        else:
            self.rows[key] = {name: row[name] for name in self.schema.column_names}

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.schema.key)


def _position(row: Row) -> tuple[int, int]:
    return row["log_id"], row["record_offset"]


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Sort the rows, so that the order of writes does not matter."""
    return sorted(rows, key=lambda row: [(value is not None, str(value)) for value in row.values()])


def source_schema(schema: TableSchema) -> pa.Schema:
    return schema.arrow.append(pa.field(DELETED, pa.bool_()))


def source_table(schema: TableSchema, rows: Iterable[Row]) -> pa.Table:
    """Return the rows as a merge source. Missing columns are null; without `_deleted` a row is an update."""
    empty = dict.fromkeys(schema.column_names) | {DELETED: False}
    return pa.Table.from_pylist([empty | row for row in rows], schema=source_schema(schema))


def random_steps(rng: Random, schema: TableSchema, steps: int, keys: int = 30) -> Iterator[Step]:
    """Yield merges that change the same rows again: their keys come from a small pool.

    Some merges are loads, and some start a new checkpoint.
    """
    pool = [_random_columns(rng, schema, schema.key) for _ in range(keys)]
    checkpoint_id, batch_id = 1, -1
    for _ in range(steps):
        checkpoint_id, batch_id = (checkpoint_id + 1, 0) if rng.random() < 0.15 else (checkpoint_id, batch_id + 1)
        only = tuple(rng.sample(PARTITIONS, rng.randint(1, 2))) if rng.random() < 0.4 else ()
        chosen = rng.sample(pool, rng.choice([0, 1, keys // 2, keys // 2]))
        rows = [_random_row(rng, schema, key) for key in chosen if not only or key["offsets_partition"] in only]
        unique = {tuple(row[name] for name in schema.key): row for row in rows}
        yield Step(list(unique.values()), BatchId(checkpoint_id, -1 if only else batch_id), only)


def _random_row(rng: Random, schema: TableSchema, key: Row) -> Row:
    row = _random_columns(rng, schema, schema.column_names) | key
    if "key_json" in key:  # the key of a record has its group
        row["group_id"] = key["key_json"]
    return row | {"log_id": rng.choice([0, 0, 0, 1]), "record_offset": rng.randint(0, 20), DELETED: rng.random() < 0.3}


def _random_columns(rng: Random, schema: TableSchema, names: tuple[str, ...]) -> Row:
    row = {column.name: _random_value(rng, column.type) for column in schema.columns if column.name in names}
    return row | {"offsets_partition": rng.choice(PARTITIONS)}


def _random_value(rng: Random, kind: str) -> Any:
    if rng.random() < 0.1:
        return None
    pools: dict[str, list[Any]] = {
        "STRING": HOSTILE,
        "INT": [0, 0, 1, -1, 2**31 - 1],
        "BIGINT": [0, 1, -1, 2**63 - 1],
        "BOOLEAN": [True, False],
        "TIMESTAMP": [_EPOCH + timedelta(milliseconds=number) for number in (0, 1, -1, 10**12)],
    }
    return rng.choice(pools[kind])
