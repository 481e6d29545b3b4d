"""Tables of one small cluster, with a group of every kind."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from offsetstream.cli.main import main
from offsetstream.coordinator.partitioning import partition_for
from testkit.group_world import GroupWorld
from testkit.tables import append_rows, create_empty_tables, new_tables

PARTITIONS = 50
T1, T2, T3 = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg", "AAAAAAAAAAAAAAAAAAAAAw"
Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def signals_are_taken_as_before() -> Iterator[None]:
    """A command that was called in a process, as a notebook does, leaves its signals to it."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    yield
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def place(group_id: str, partition: int | None = None) -> dict[str, Any]:
    own = partition_for(group_id, PARTITIONS)
    return {
        "group_id": group_id,
        "offsets_partition": own if partition is None else partition,
        "in_coordinator_partition": partition in {None, own},
    }


def group(group_id: str, group_type: str, state: str, members: int, **fields: Any) -> dict[str, Any]:
    row = {"group_type": group_type, "state": state, "is_simple": False, "member_count": members}
    return place(group_id) | row | fields


def member(group_id: str, member_id: str, **fields: Any) -> dict[str, Any]:
    row = {"member_id": member_id, "client_id": f"client-{member_id}", "client_host": "/10.0.0.1"}
    return place(group_id) | row | fields


def assigned(group_id: str, member_id: str, *partitions: int, **fields: Any) -> Iterator[dict[str, Any]]:
    for partition in partitions:
        yield place(group_id) | {"member_id": member_id, "kind": "assigned", "partition": partition} | fields


def commit(group_id: str, topic: str, partition: int, offset: int, **fields: Any) -> dict[str, Any]:
    row = {"topic": topic, "partition": partition, "committed_offset": offset, "metadata": "", "record_offset": 7}
    return place(group_id) | row | {"commit_timestamp_ms": 1_767_225_600_123} | fields


def write_states(root: Path, states: list[str]) -> None:
    rows = [{"offsets_partition": n, "load_state": state, "coordinator_id": 1} for n, state in enumerate(states)]
    append_rows(root, "offsets_partitions", rows)
    append_rows(
        root, "cluster", [{"cluster_id": "c", "sample_interval_ms": 3_600_000}]
    )  # data stay fresh for all tests


def write_cluster(root: Path) -> None:
    classic = {"protocol_type": "consumer", "protocol": "range", "generation": 3}
    simple = {"is_simple": True, "generation": 0}
    left_behind = group("moved", "Classic", "Empty", 0, **simple) | place("moved", 3)
    append_rows(
        root,
        "groups",
        [
            group("app", "Classic", "Stable", 3, **classic),
            group("kip", "Consumer", "Reconciling", 2, group_epoch=8, assignment_epoch=7),
            group("share", "Share", "Stable", 1, group_epoch=2, assignment_epoch=2),
            group("streams", "Streams", "NotReady", 1, group_epoch=4, assignment_epoch=4),
            group("old", "Classic", "Empty", 0, **simple),
            left_behind,
            group("moved", "Classic", "Empty", 0, **classic),
        ],
    )
    by_classic = {"is_classic_protocol": True}
    by_consumer = {"is_classic_protocol": False, "member_epoch": 7, "server_assignor": "uniform"}
    append_rows(
        root,
        "group_members",
        [
            *(member("app", member_id, **by_classic) for member_id in ("m1", "m2", "m3-without-partitions")),
            member("kip", "k1", **by_consumer, group_instance_id="i1"),
            member("kip", "k2", **by_classic, member_epoch=6),
            member("share", "s1", is_classic_protocol=False, member_epoch=2),
            member("streams", "p1", is_classic_protocol=False, member_epoch=4),
        ],
    )
    append_rows(
        root,
        "member_assignments",
        [
            *assigned("app", "m1", 2, topic="t"),
            *assigned("app", "m2", 1, 0, topic="t"),
            *assigned("kip", "k1", 0, 10, 9, topic_id=T1, topic="t"),
            *assigned("kip", "k1", 1, topic_id=T3, topic=T3),
            *assigned("kip", "k1", 0, 10, topic_id=T1, topic="t", kind="target"),
            *assigned("kip", "k2", 1, topic_id=T1, topic="t", kind="pending_revocation"),
            *assigned("share", "s1", 0, topic_id=T2, topic=T2),
            *assigned("streams", "p1", 0, 1, subtopology_id="0", kind="active"),
            *assigned("streams", "p1", 1, subtopology_id="1", kind="standby"),
        ],
    )
    append_rows(
        root,
        "committed_offsets",
        [
            commit("app", "t", 0, 100, leader_epoch=5, metadata='by hand, "really"\nso'),
            commit("app", "t", 1, 50, topic_id=T1),
            commit("app", "a-topic-with-a-long-name", 0, -1),
            commit("kip", "t", 0, 11, topic_id=T1),
            commit("old", "t", 10, 1, commit_timestamp_ms=2**62, expire_timestamp_ms=1_767_225_600_000),
            commit("old", "t", 9, 2),
            commit("moved", "t", 0, 2),
            commit("moved", "t", 0, 1) | place("moved", 3),
        ],
    )


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cluster")
    create_empty_tables(root)
    write_cluster(root)
    write_states(root, ["OWNED"] * PARTITIONS)
    return root


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty minutes of a made-up cluster."""
    root = tmp_path_factory.mktemp("world")
    new_tables(root, GroupWorld(1).rows)
    return root


@pytest.fixture
def run(cluster: Path) -> Run:
    """Run a command on the cluster's tables; its output is what a user sees."""

    def invoke(*arguments: str, tables: Path = cluster, color: bool = False) -> Result:
        return CliRunner().invoke(main, arguments, env={"OFFSETSTREAM_TABLES": str(tables)}, color=color)

    return invoke
