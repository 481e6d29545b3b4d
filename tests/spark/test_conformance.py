"""The logs of tests/conformance, applied by the job's own load and batches into Delta, each in its own partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from offsetstream.codec.batches import LogRecord
from offsetstream.coordinator import GroupMetadataCache
from offsetstream.coordinator.partitioning import Coordinator
from offsetstream.stream.apply.log_pass import pass_on_driver, pass_over
from offsetstream.stream.apply.raw_reader import RAW_SCHEMA
from offsetstream.stream.records import collect, with_value_offsets
from offsetstream.stream.state import StateTables
from offsetstream.tables.catalog_store import CatalogStore
from offsetstream.tables.create import create_tables
from offsetstream.tables.names import STATE_TABLES
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.store import Store
from offsetstream.tables.transaction import BatchId
from testkit.tables import new_tables
from tests.conformance.case import BOTH, Case
from tests.conformance.cases import CASES
from tests.conformance.histories import History
from tests.conformance.pure_tables import PureTables, consumed
from tests.conformance.report import not_in_tables, reason_not_in_tables
from tests.conformance.state_rows import snapshot, without_empty_assignments
from tests.conformance.valid_histories import valid_histories
from tests.spark.log import NO_HISTORY, decode

Logs: TypeAlias = Sequence[Sequence[LogRecord]]
State: TypeAlias = Callable[[int], dict[str, Any]]
Reduced: TypeAlias = Literal["no", "in tasks", "on the driver"]
BATCHES = 5
PAIRS = [
    pytest.param(case, coordinator, id=f"{case.kafka_class}-{case.name}-{coordinator}")
    for case in CASES
    for coordinator in case.coordinators
]


def frame(spark: SparkSession, logs: Logs) -> DataFrame:
    """Return the records as the Kafka source gives them, each log in a partition of its own."""
    return spark.createDataFrame(rows_of(logs))


def rows_of(logs: Logs) -> pa.Table:
    """Return the records as the raw reader gives them."""
    rows = [
        {
            "offsets_partition": partition,
            "record_offset": record.offset,
            "record_timestamp": None if record.timestamp_ms is None else record.timestamp_ms * 1000,
            "key": record.key,
            "value": record.value,
        }
        for partition, log in enumerate(logs)
        for record in log
    ]
    return pa.Table.from_pylist(rows, schema=RAW_SCHEMA)


def apply(spark: SparkSession, state: StateTables, logs: Logs, batch: BatchId, *, reduced: Reduced) -> None:
    """Apply logs. `reduced`: where they are reduced first, as the job does in a load and in a large batch."""
    if reduced == "in tasks":
        with pass_over(frame(spark, logs), NO_HISTORY, len(logs)) as passed:
            decoded = passed.cells.decoded.toArrow()
    elif reduced == "on the driver":
        with pass_on_driver((batch for batch in rows_of(logs).to_batches()), spark, NO_HISTORY, len(logs)) as passed:
            decoded = passed.cells.fetched()
    else:
        decoded = collect(with_value_offsets(decode(frame(spark, logs), len(logs))))
    state.apply(decoded, batch, loaded=range(len(logs)) if batch.is_load else ())


def in_parts(logs: Logs, parts: int) -> Iterator[Logs]:
    """Cut the logs into `parts` parts, each log by its own records."""
    for begin, end in pairwise(range(parts + 1)):
        yield [log[len(log) * begin // parts : len(log) * end // parts] for log in logs]


def by_partition(tables: Store) -> State:
    """Return the tables' rows of each partition in the form of the model's snapshot."""
    names = ("groups", "group_members", "member_assignments", "committed_offsets")
    rows = {name: read_rows(tables.open(name)) for name in names}
    return lambda partition: snapshot(
        {name: [row for row in found if row["offsets_partition"] == partition] for name, found in rows.items()}
    )


@pytest.fixture(scope="module")
def states(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, Coordinator], State]:
    """The result of all cases, by way of writing and coordinator."""
    logs = [consumed(case.batches) for case in CASES]

    def new_store(way: str, coordinator: Coordinator) -> Store:
        if "catalog" not in way:
            return new_tables(tmp_path_factory.mktemp(f"{way}-{coordinator}"))
        request.getfixturevalue("metastore")
        store = CatalogStore("spark_catalog", f"conformance_{way.split(maxsplit=1)[0]}_{coordinator}").read_by(spark)
        create_tables(store, "cluster-1", coordinator, STATE_TABLES)
        return store

    @cache
    def found(way: str, coordinator: Coordinator) -> State:
        tables, is_load = new_store(way, coordinator), way.startswith("load")
        reduced: Reduced = "on the driver" if "raw" in way else "no" if "small" in way else "in tasks"
        state = StateTables(tables, coordinator, {}, {})
        for number, part in enumerate(in_parts(logs, 1 if is_load else BATCHES)):
            apply(spark, state, part, BatchId(1, -1 if is_load else number), reduced=reduced)
        return by_partition(tables)

    return found


@pytest.mark.parametrize(
    "way",
    [
        "load",
        pytest.param("load raw", marks=pytest.mark.long),
        "batches",
        "small batches",
        *(pytest.param(f"{way} in a catalog", marks=pytest.mark.nightly) for way in ("load", "batches")),
    ],
)
@pytest.mark.parametrize(("case", "coordinator"), PAIRS)
def test_case(states: Callable[[str, Coordinator], State], case: Case, coordinator: Coordinator, way: str) -> None:
    got = states(way, coordinator)(CASES.index(case))
    differences = case.differences(got)
    if reason_not_in_tables(case):
        pure = PureTables(coordinator)
        pure.apply(consumed(case.batches))
        assert case.fails or differences
        assert got == pure.snapshot() or "batches" in way
    else:
        assert differences == {}


def test_each_exception_is_a_case() -> None:
    named = {case.name for case in CASES} | {f"{case.kafka_class} {case.name}" for case in CASES}
    assert not_in_tables().keys() <= named


def coordinator_state(history: History, end: int, coordinator: Coordinator) -> dict[str, Any]:
    """Return a coordinator's state after the log up to an offset."""
    cache = GroupMetadataCache(coordinator)
    cache.load_partition(0, history.between(0, end))
    return without_empty_assignments(cache.snapshot())


@pytest.mark.parametrize(
    "reduced", ["no", *(pytest.param(where, marks=pytest.mark.long) for where in ("in tasks", "on the driver"))]
)
@pytest.mark.parametrize("coordinator", BOTH)
def test_random_logs_batch_by_batch(
    spark: SparkSession, tmp_path: Path, coordinator: Coordinator, reduced: Reduced
) -> None:
    """30 logs for each coordinator. The tables equal the model after each batch; the last batch is applied twice."""
    lists = st.lists(valid_histories(coordinator, max_steps=30), min_size=30, max_size=30)

    @settings(max_examples=1, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(found=lists, data=st.data())
    def check(found: list[History], data: st.DataObject) -> None:
        tables = new_tables(tmp_path / "tables")
        state = StateTables(tables, coordinator, {}, {})
        cuts = [_cuts(history, data) for history in found]
        for number in (*range(BATCHES), BATCHES - 1):
            parts = [consumed(h.between(cut[number], cut[number + 1])) for h, cut in zip(found, cuts, strict=True)]
            apply(spark, state, parts, BatchId(1, number), reduced=reduced)
            now = by_partition(tables)
            for partition, (history, cut) in enumerate(zip(found, cuts, strict=True)):
                assert now(partition) == coordinator_state(history, cut[number + 1], coordinator), (number, history)

    check()


def _cuts(history: History, data: st.DataObject) -> list[int]:
    """Choose batch boundaries. A consumer never sees a part of a transaction."""
    ends = [b.next_offset for b in history.batches if b.is_control or not b.is_transactional] or [0]
    inner = data.draw(st.lists(st.sampled_from([0, *ends]), min_size=BATCHES - 1, max_size=BATCHES - 1))
    return [0, *sorted(inner), max(ends)]
