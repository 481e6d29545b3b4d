"""Which replica of a partition is read, up to where, and from where on nothing is missing."""

from pathlib import Path

import pytest

from offsetstream.codec.batches import ControlType
from offsetstream.codec.log_replicas import ReadableLog, cluster_ids, open_logs, topic_names
from offsetstream.codec.log_segments import find_replicas
from offsetstream.errors import SegmentError, UsageError
from testkit.segments import TRANSACTIONAL, batch, marker, write_segment

ONE = [(b"k", b"v")]
LATEST = 10**12
LOG = tuple(batch(offset, ONE, max_ms=1000 + offset) for offset in range(6))


def broker(folder: Path, *batches: bytes, epochs: str | None = "0\n1\n3 0\n", until: int | None = None) -> Path:
    """Make a log directory with partition 7. `until`: its high watermark."""
    place = folder / "__consumer_offsets-7"
    place.mkdir(parents=True)
    write_segment(place, 0, *batches)
    if epochs is not None:
        (place / "leader-epoch-checkpoint").write_text(epochs)
    if until is not None:
        (folder / "replication-offset-checkpoint").write_text(f"0\n2\norders 7 99\n__consumer_offsets 7 {until}\n")
    return folder


def opened(*places: Path, warnings: int = 0) -> ReadableLog:
    told: list[str] = []
    (log,) = open_logs(find_replicas(places), LATEST, told.append)
    assert len(told) == warnings, told
    return log


def test_a_log_is_read_up_to_its_high_watermark(tmp_path: Path) -> None:
    log = opened(broker(tmp_path, *LOG, until=4))
    assert (log.number, log.high_watermark, log.last_stable_offset) == (7, 4, 4)
    assert (log.complete_from, log.complete_since_ms, log.newest_ms) == (0, 1000, 1003)


def test_the_replica_with_the_last_epoch_is_read_and_of_these_the_longest(tmp_path: Path) -> None:
    brokers = [
        broker(tmp_path / "1", *LOG, epochs="0\n1\n3 0\n", until=3),
        broker(tmp_path / "2", *LOG[:4], epochs="0\n2\n3 0\n5 3\n", until=3),
        broker(tmp_path / "3", *LOG[:5], epochs="0\n2\n3 0\n5 3\n", until=5),
    ]
    for places in (brokers, brokers[::-1], [tmp_path]):
        log = opened(*places)
        assert log.replica.partition.path == tmp_path / "3" / "__consumer_offsets-7"
        assert log.high_watermark == 5


def test_what_no_file_says_is_told(tmp_path: Path) -> None:
    assert opened(broker(tmp_path / "1", *LOG[:4]), warnings=1).high_watermark == 4
    both = (broker(tmp_path / "2", *LOG, epochs=None, until=6), broker(tmp_path / "3", *LOG[:2], until=2))
    assert opened(*both, warnings=1).high_watermark == 6


def test_records_that_the_chosen_replica_lacks_are_told(tmp_path: Path) -> None:
    told: list[str] = []
    open_logs(find_replicas([broker(tmp_path, *LOG, until=9)]), LATEST, told.append)
    assert told == [
        f"Partition 7: {tmp_path / '__consumer_offsets-7'} ends at offset 6, but its replicas had committed up to "
        "offset 9: the rest is missing"
    ]


@pytest.mark.parametrize("text", ["1\n0\n", "0\n2\n3 0\n", "0\nx\n", "0\n1\n3 x\n"])
def test_a_checkpoint_file_that_is_not_whole_is_not_used(tmp_path: Path, text: str) -> None:
    assert opened(broker(tmp_path, *LOG, epochs=text, until=6), warnings=1).replica.epoch is None


def test_an_empty_checkpoint_file_has_no_rows(tmp_path: Path) -> None:
    """A broker makes it when it starts."""
    folder = broker(tmp_path, *LOG, epochs="", until=6)
    (folder / "log-start-offset-checkpoint").write_text("")
    assert opened(folder).replica.epoch == -1


def test_an_open_transaction_ends_the_log_and_a_later_marker_does_not_count(tmp_path: Path) -> None:
    log = (
        *LOG[:2],
        batch(2, ONE, attributes=TRANSACTIONAL, producer=(8, 0)),
        batch(3, ONE),
        marker(4, ControlType.COMMIT, (8, 0)),
    )
    assert opened(broker(tmp_path / "1", *log, until=4)).last_stable_offset == 2
    assert opened(broker(tmp_path / "2", *log, until=5)).last_stable_offset == 5


def test_nothing_is_missing_behind_the_last_hole(tmp_path: Path) -> None:
    after_hole = opened(broker(tmp_path / "1", LOG[0], *LOG[2:], until=6))
    assert (after_hole.complete_from, after_hole.complete_since_ms) == (2, 1002)
    cut = opened(broker(tmp_path / "2", *LOG[3:], until=6))
    assert (cut.complete_from, cut.complete_since_ms) == (3, 1003)
    in_batch = batch(0, ONE, max_ms=1, last_delta=3)
    assert opened(broker(tmp_path / "3", in_batch, *LOG[4:], until=6)).complete_from == 4
    at_end = opened(broker(tmp_path / "4", *LOG[:4], batch(4, ONE, last_delta=1), until=6))
    assert (at_end.complete_from, at_end.complete_since_ms) == (6, None)


def test_times_of_the_future_say_nothing(tmp_path: Path) -> None:
    wrong = [batch(offset, ONE, max_ms=LATEST + 1) for offset in (0, 1)]
    log = opened(broker(tmp_path, *wrong, *LOG[2:4], batch(4, ONE, max_ms=2**62), until=5))
    assert (log.complete_from, log.complete_since_ms, log.newest_ms) == (0, 1002, 1003)


def test_segments_that_overlap_have_no_hole(tmp_path: Path) -> None:
    folder = broker(tmp_path, *LOG[:4], until=6)
    write_segment(folder / "__consumer_offsets-7", 2, *LOG[2:])
    assert opened(folder).complete_from == 0


def test_a_batch_with_another_offset_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(SegmentError, match=r"\(offset 1\) is damaged: the batch before it ends at offset 3"):
        opened(broker(tmp_path, *LOG[:4], LOG[1], until=6))


def test_the_cluster_and_the_topics_come_from_the_log_directory(tmp_path: Path) -> None:
    folder = broker(tmp_path / "data", *LOG, until=6)
    assert (cluster_ids(find_replicas([folder])), topic_names(find_replicas([folder]))) == (set(), {})
    (folder / "meta.properties").write_text("#\nversion=1\ncluster.id=abc\nnode.id=1\n")
    for name in ("orders-eu-0", "orders-eu-1"):
        (folder / name).mkdir()
        (folder / name / "partition.metadata").write_text("version: 0\ntopic_id: J_6l0RURRNa-7q8rdGS_oA")
    found = find_replicas([folder / "__consumer_offsets-7"])
    assert (cluster_ids(found), topic_names(found)) == ({"abc"}, {"J_6l0RURRNa-7q8rdGS_oA": "orders-eu"})


def test_a_partition_without_a_number_is_refused(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, *LOG)
    with pytest.raises(UsageError, match="no partition number"):
        find_replicas([tmp_path / f"{0:020}.log"])
