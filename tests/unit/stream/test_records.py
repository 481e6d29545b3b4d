import pyarrow as pa

from offsetstream.stream.records import Share, add_shares, by_partition

RECORDS = pa.table(
    {
        "offsets_partition": pa.array([7, 3, 7, 7, 5, 5], pa.int32()),
        # of 3 no engine can hold the time, of the first of 5 none is known
        "record_timestamp": pa.array([2_000, 2**62, 5_999, 1_000, None, 9_000], pa.timestamp("us", "UTC")),
    }
)
SHARES = {7: Share(3, 5), 3: Share(1, None), 5: Share(2, 9)}


def test_records_are_counted_and_the_newest_is_known() -> None:
    assert by_partition(RECORDS) == SHARES
    assert by_partition(RECORDS.slice(0, 0)) == {}


def test_shares_of_parts_add_up_to_the_total() -> None:
    whole: dict[int, Share] = {}
    for at in range(RECORDS.num_rows):
        add_shares(whole, by_partition(RECORDS.slice(at, 1)))
    assert whole == SHARES
