import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetstream.tables.transaction import BatchId, app_id

batches = st.builds(BatchId, st.integers(0, 2**31 - 1), st.integers(-1, 2**32 - 2))


@given(batches)
def test_a_version_is_a_long_of_java_with_the_checkpoint_and_then_the_number_of_batches(batch: BatchId) -> None:
    """So versions are in the order of checkpoints and batches."""
    assert 0 <= batch.version < 2**63
    assert (batch.version >> 32, batch.version & 0xFFFFFFFF) == (batch.checkpoint_id, batch.batch_id + 1)


@pytest.mark.parametrize(("batch_id", "is_load"), [(-1, True), (0, False), (7, False)])
def test_a_load_is_no_batch(batch_id: int, is_load: bool) -> None:
    assert BatchId(1, batch_id).is_load is is_load


def test_each_table_counts_its_own_batches() -> None:
    assert app_id("groups") == "offsetstream/groups/batch"
