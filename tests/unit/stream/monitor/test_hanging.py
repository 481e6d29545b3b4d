from dataclasses import replace
from datetime import UTC, datetime, timedelta

from offsetstream.stream.monitor.hanging import HangingTransactions
from offsetstream.stream.partitions.rows import PartitionRow

FIFTEEN = timedelta(minutes=15)


def row(number: int, stable: int, high: int, minutes: float | None) -> PartitionRow:
    since = None if minutes is None else datetime.now(UTC) - timedelta(minutes=minutes)
    return PartitionRow(number, last_stable_offset=stable, high_watermark=high, last_stable_offset_since=since)


def test_a_long_transaction_is_logged_once_and_its_end_once() -> None:
    said: list[str] = []
    hanging = HangingTransactions(FIFTEEN, said.append, said.append)
    hanging.look([row(0, 5, 5, None), row(1, 90, 1_100, 14.9), row(2, 7, 9, None)])
    assert said == []
    stands = row(1, 90, 1_100, 15.01)
    for _ in range(3):
        hanging.look([row(0, 5, 5, None), stands])
    hanging.look([replace(stands, high_watermark=2_000)])
    assert len(said) == 1
    assert said[0].startswith(
        "Offsets partition 1 is blocked at offset 90 by a transaction that has been open for 15.0 minutes: "
        "1,010 records wait behind it; "
    )
    hanging.look([row(1, 2_000, 2_000, None)])
    assert said[1:] == ["Offsets partition 1 is no longer blocked, after 15.0 minutes"]


def test_the_next_transaction_of_a_partition_is_logged_too() -> None:
    said: list[str] = []
    hanging = HangingTransactions(FIFTEEN, said.append, said.append)
    hanging.look([row(1, 90, 100, 60)])
    hanging.look([row(1, 95, 100, 0)])
    hanging.look([row(1, 95, 100, 16)])
    assert [line.split(" by ")[0] for line in said] == [
        "Offsets partition 1 is blocked at offset 90",
        "Offsets partition 1 is no longer blocked, after 60.0 minutes",
        "Offsets partition 1 is blocked at offset 95",
    ]
