"""Invariants of the sample tables after a crash: samples are in order, and both tables have the newest values."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import Any

from offsetstream.stream.sampling.sample_book import Values
from offsetstream.tables.path_store import PathStore
from tests.reliability.truth import rows

Row = dict[str, Any]


def sample_differences(tables: PathStore) -> list[str]:
    """Return how `end_offsets` and `topic_partitions` contradict themselves or each other; empty if they do not.

    `differences` in truth.py checks that no row is doubled.
    """
    ends = sorted(rows(tables, "end_offsets"), key=lambda row: (*_place(row), row["sampled_at"]))
    history = {place: list(own) for place, own in groupby(ends, _place)}
    found = [f"{place}: {wrong}" for place, own in history.items() for wrong in _out_of_order(own)]
    newest = {_place(row): row for row in rows(tables, "topic_partitions") if row["changed_at"]}
    found += [f"{place}: not in topic_partitions" for place in history.keys() - newest.keys()]
    for place, row in newest.items():
        last = history[place][-1] if place in history else {}
        found += [
            f"{place}: {name} {row[name]} in topic_partitions, {last.get(name)} in end_offsets"
            for name in Values._fields
            if row[name] != last.get(name)
        ]
    return found


def _place(row: Row) -> tuple[str, str, int]:
    return row["topic"], row["topic_id"] or "", row["partition"]


def _out_of_order(own: list[Row]) -> list[str]:
    """Find rows out of order: each says how long the previous row held, which is not before that row's sample."""
    return [
        f"{earlier['sampled_at']}, held until {later['previous_sampled_at']}, then {later['sampled_at']}"
        for earlier, later in pairwise(own)
        if not earlier["sampled_at"] <= (later["previous_sampled_at"] or earlier["sampled_at"]) <= later["sampled_at"]
    ]
