"""The driver's state tables equal the pure functions' dictionaries, batch by batch, each batch twice."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from offsetstream.codec.batches import LogRecord
from offsetstream.coordinator.partitioning import Coordinator
from offsetstream.stream.state.state_tables import StateTables
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.record_rows import decode_on_driver
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.transaction import BatchId
from tests.conformance.builder import classic, classic_member
from tests.conformance.case import BOTH
from tests.conformance.histories import History
from tests.conformance.pure_tables import PureTables, consumed
from tests.conformance.state_rows import snapshot
from tests.conformance.valid_histories import valid_histories

LOGS, BATCHES = 30, 6
RAW = pa.schema(
    [
        ("offsets_partition", pa.int32()),
        *((name, pa.int64()) for name in ("record_offset", "value_offset", "tombstone_offset")),
        ("record_timestamp", pa.timestamp("us", "UTC")),
        ("in_coordinator_partition", pa.bool_()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
TABLES = ("groups", "group_members", "member_assignments", "committed_offsets")


def random_histories(coordinator: Coordinator) -> list[History]:
    """A log for each offsets partition."""
    found: list[History] = []
    lists = st.lists(valid_histories(coordinator, max_steps=30), min_size=LOGS, max_size=LOGS)

    @seed(20261128)
    @settings(max_examples=1, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(lists)
    def collect(histories: list[History]) -> None:
        found[:] = histories

    collect()
    return found


def decoded(logs: Sequence[Sequence[LogRecord]]) -> pa.Table:
    """The records of the logs as the job decodes them, one partition for each log."""
    rows = [
        {
            "offsets_partition": partition,
            "record_offset": record.offset,
            "value_offset": None if record.value is None else record.offset,
            "tombstone_offset": record.offset if record.value is None else None,
            "record_timestamp": None if record.timestamp_ms is None else record.timestamp_ms * 1000,
            "in_coordinator_partition": True,
            "key": record.key,
            "value": record.value,
        }
        for partition, log in enumerate(logs)
        for record in log
    ]
    return decode_on_driver(pa.Table.from_pylist(rows, schema=RAW))


@pytest.mark.parametrize("coordinator", BOTH)
def test_random_batches(tables: PathStore, coordinator: Coordinator) -> None:
    logs = [consumed(history.batches) for history in random_histories(coordinator)]
    state, pure = StateTables(tables, coordinator, {}, {}), [PureTables(coordinator) for _ in logs]
    for number in range(BATCHES):
        parts = [log[len(log) * number // BATCHES : len(log) * (number + 1) // BATCHES] for log in logs]
        for _ in range(2):
            state.apply(decoded(parts), BatchId(1, number))
        rows = {name: read_rows(tables.open(name)) for name in TABLES}
        for partition, (part, expected) in enumerate(zip(parts, pure, strict=True)):
            expected.apply(part)
            own = {
                name: [row for row in of_all if row["offsets_partition"] == partition] for name, of_all in rows.items()
            }
            assert snapshot(own) == expected.snapshot(), (number, partition)


def test_a_member_that_replaces_another_is_the_only_one(tables: PathStore) -> None:
    state = StateTables(tables, "new", {}, {})
    for number, member in enumerate(("first", "second")):
        record = LogRecord(number, None, *classic(classic_member(member), group="g"))
        state.apply(decoded([[record]]), BatchId(1, number))
        assert [row["member_id"] for row in read_rows(tables.open("group_members"))] == [member]
