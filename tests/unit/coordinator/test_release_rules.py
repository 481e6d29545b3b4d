"""The model replays a log as each release's brokers do (tests/kafka/test_release_rules.py checks real brokers)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offsetstream.codec.batches import RecordBatch
from offsetstream.coordinator import GroupMetadataCache
from offsetstream.coordinator.replay.release_rules import LAST_RELEASE, UNMERGED, Rule, rules_for
from offsetstream.errors import UsageError
from testkit.examples import examples
from tests.conformance.builder import Log
from tests.conformance.histories import History
from tests.conformance.pure_tables import PureTables, consumed
from tests.conformance.release_cases import DOWNGRADED, LARGE_ARRAY, RELEASE_CASES, RELEASES, UPGRADED, ReleaseCase
from tests.conformance.state_rows import without_empty_assignments
from tests.conformance.valid_histories import valid_histories

# A million elements take a second or two.
LOADS = [
    pytest.param(case, release, id=f"{case.group}-{release}")
    for case in RELEASE_CASES
    for release in (*RELEASES, UNMERGED)
    if case.group != LARGE_ARRAY or release in {"4.3.1", "4.4.0"}
]


@pytest.mark.parametrize(("case", "release"), LOADS)
def test_a_release_loads_or_fails_as_its_brokers_do(case: ReleaseCase, release: str) -> None:
    cache = GroupMetadataCache(release=release)
    result = cache.load_partition(0, Log().write(*case.pairs).batches)
    assert result.status == ("failed" if case.type_in(release) is None else "loaded"), result.error
    types = {row["type"] for row in cache.snapshot()["groups"]}
    assert types == ({case.type_in(release)} - {None, ""})


@pytest.mark.parametrize("group", [UPGRADED, DOWNGRADED])
def test_the_proposed_rule_gives_the_groups_of_the_tables(group: str) -> None:
    """KAFKA-21117: in the tables the latest record counts, whatever the release; other releases skip records."""
    (case,) = (each for each in RELEASE_CASES if each.group == group)
    log = Log()
    for pair in case.pairs:
        log.write(pair)
    tables = PureTables("new")
    tables.apply(consumed(log.batches))
    cache = GroupMetadataCache(release=UNMERGED)
    assert cache.load_partition(0, log.batches).status == "loaded"
    assert tables.snapshot() == without_empty_assignments(cache.snapshot())


def cleaned(batches: Sequence[RecordBatch], read: int, end: int, forgotten: int) -> list[RecordBatch]:
    """Return what a reader gets from a log that is compacted after `read` batches.

    It cleans the batches before `end`: only the last record of a key stays, and of tombstones only those from batch
    `forgotten` on.
    """
    last = {record.key: record.offset for batch in batches[:end] for record in batch.records}
    rest = [
        replace(
            batch,
            records=tuple(
                record
                for record in batch.records
                if batch.is_control or (record.offset == last[record.key] and (record.value or number >= forgotten))
            ),
        )
        for number, batch in enumerate(batches[read:end], read)
    ]
    return [*batches[:read], *rest, *batches[end:]]


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
@given(history=valid_histories("new"), data=st.data())
def test_the_proposed_rule_changes_only_failed_loads_and_gives_the_groups_of_the_tables(
    history: History, data: st.DataObject
) -> None:
    read, forgotten, end = sorted(data.draw(st.tuples(*[st.integers(0, len(history.batches))] * 3)))
    log = cleaned(history.batches, read, end, forgotten)
    newest, proposed = (GroupMetadataCache(release=release) for release in (LAST_RELEASE, UNMERGED))
    loads = newest.load_partition(0, log).status, proposed.load_partition(0, log).status
    if loads[0] == "loaded":
        assert proposed.snapshot() == newest.snapshot()
    elif loads[1] == "loaded":
        tables = PureTables("new")
        tables.apply(consumed(log))
        assert tables.snapshot() == without_empty_assignments(proposed.snapshot())


def test_records_that_a_release_cannot_replay_are_skipped() -> None:
    (case,) = (each for each in RELEASE_CASES if each.group == UPGRADED)
    cache = GroupMetadataCache(release="4.3.1", on_bad_record="skip")
    result = cache.load_partition(0, Log().write(*case.pairs).batches)
    assert (result.status, len(result.skipped)) == ("loaded", len(case.pairs) - 1)
    assert {row["type"] for row in cache.snapshot()["groups"]} == {"Classic"}


def test_a_proposed_rule_is_in_no_release() -> None:
    proposed = {rule for rule in Rule if not rule.since}
    assert proposed
    assert all(not proposed & rules_for(release) for release in RELEASES)
    assert rules_for(UNMERGED) == rules_for(LAST_RELEASE) | proposed


@pytest.mark.parametrize(("short", "newest"), [("4.0", "4.0.2"), ("4.1", "4.1.2"), ("4.2", "4.2.1"), ("4.3", "4.3.1")])
def test_a_release_without_a_patch_number_means_its_newest_patch(short: str, newest: str) -> None:
    assert rules_for(short) == rules_for(newest)


@pytest.mark.parametrize("release", ["", "4", "3.9.2", "4.5", "5.0", "4.1.x", "4.1-IV0", "latest", "٤.1", "4.1\n"])
def test_unknown_releases_are_refused(release: str) -> None:
    with pytest.raises(UsageError, match=r"not a release from 4\.0 to 4\.4: write 4\.1\.1, 4\.3 or unmerged"):
        GroupMetadataCache(release=release)
