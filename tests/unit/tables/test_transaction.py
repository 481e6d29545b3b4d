import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetstream.tables.transaction import BatchId, app_id

batches = st.builds(BatchId, st.integers(0, 2**31 - 1), st.integers(-1, 2**32 - 2))


@given(batches, batches)
def test_versions_are_in_the_order_of_checkpoints_and_batches(one: BatchId, other: BatchId) -> None:
    of_one, of_other = (one.checkpoint_id, one.batch_id), (other.checkpoint_id, other.batch_id)
    assert (one.version < other.version) == (of_one < of_other)


@given(batches)
def test_a_version_is_one_of_javas_longs(batch: BatchId) -> None:
    assert 0 <= batch.version < 2**63


@given(batches)
def test_a_version_contains_the_checkpoint_and_the_number_of_batches(batch: BatchId) -> None:
    assert batch.version >> 32 == batch.checkpoint_id
    assert batch.version & 0xFFFFFFFF == batch.batch_id + 1


@pytest.mark.parametrize(("batch_id", "is_load"), [(-1, True), (0, False), (7, False)])
def test_a_load_is_no_batch(batch_id: int, is_load: bool) -> None:
    assert BatchId(1, batch_id).is_load is is_load


def test_each_table_counts_its_own_batches() -> None:
    assert app_id("groups") == "offsetstream/groups/batch"
    assert app_id("groups") != app_id("group_members")
