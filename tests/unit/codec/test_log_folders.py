"""Segments are found in a broker's folders, in a part of them, and nowhere else."""

from pathlib import Path

import pytest

from offsetstream.codec.log_segments import find_partitions
from offsetstream.errors import UsageError
from testkit.segments import batch, write_segment

DATA = batch(0, [(b"k", b"v")])


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A broker's log dir: three offsets partitions, other topics, and the other files next to the segments."""
    broker = tmp_path / "data" / "broker"  # its parent has nothing else
    for number in (2, 10, 1):
        for base in (0, 500):
            write_segment(broker / f"__consumer_offsets-{number}", base, DATA)
    write_segment(broker / "orders-0", 0, DATA)
    write_segment(broker / "__consumer_offsets-3.0a1b-delete", 0, DATA)
    write_segment(broker / "__consumer_offsets-4.0a1b-future", 0, DATA)
    folder = broker / "__consumer_offsets-2"
    for name in (
        *("00000000000000000000.index", "00000000000000000000.timeindex", "00000000000000000500.snapshot"),
        *("00000000000000000100.log.deleted", "00000000000000000000.log.cleaned", "leader-epoch-checkpoint"),
        *("partition.metadata", "0.log", "server.log"),
    ):
        (folder / name).write_bytes(b"?")
    return broker


def names(*places: Path) -> dict[int | None, list[str]]:
    return {each.number: [segment.path.name for segment in each.segments] for each in find_partitions(places)}


SEGMENTS = ["00000000000000000000.log", "00000000000000000500.log"]


def test_partitions_are_found_in_a_log_dir_and_in_folders_above_it(log_dir: Path) -> None:
    assert names(log_dir) == names(log_dir.parent) == {1: SEGMENTS, 2: SEGMENTS, 10: SEGMENTS}
    assert list(names(log_dir)) == [1, 2, 10]


def test_folders_and_single_files(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = log_dir / "__consumer_offsets-10"
    assert names(folder, log_dir / "__consumer_offsets-1") == {1: SEGMENTS, 10: SEGMENTS}
    assert names(folder / SEGMENTS[1]) == {10: [SEGMENTS[1]]}
    assert names(log_dir / "orders-0") == {0: SEGMENTS[:1]}
    monkeypatch.chdir(folder)
    assert names(Path()) == {10: SEGMENTS}
    assert names(Path(SEGMENTS[0])) == {10: SEGMENTS[:1]}
    (found,) = find_partitions([SEGMENTS[0]])
    assert found.segments[0].size == len(DATA)


def test_files_and_folders_with_other_names_have_no_partition_number(tmp_path: Path) -> None:
    path = write_segment(tmp_path / "from a colleague", 0, DATA)
    assert names(path) == names(path.parent) == {None: SEGMENTS[:1]}


def test_a_swap_segment_comes_before_the_segments_that_it_replaces(log_dir: Path) -> None:
    folder = log_dir / "__consumer_offsets-1"
    (folder / "00000000000000000000.log.swap").write_bytes(DATA)
    assert names(folder) == {1: ["00000000000000000000.log.swap", *SEGMENTS]}


def test_places_without_usable_segments_are_refused(log_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    empty = tmp_path_factory.mktemp("empty")
    one, other = log_dir / "__consumer_offsets-1", log_dir / "other" / "__consumer_offsets-1"
    write_segment(other, 0, DATA)
    nameless = [write_segment(empty / name, 0, DATA) for name in ("a", "b")]
    for places, words in (
        ([tmp_path_factory.mktemp("bare")], "has no log segments: give a log segment, a folder"),
        ([empty / "none"], "cannot read .*none: No such file or directory; give a log segment"),
        ([Path("a\0b")], "cannot read a.b: .*null"),
        ([one, other], "both hold partition 1: read them one at a time"),
        ([log_dir], "both hold partition 1"),
        (nameless, "no folder name has a partition number"),
    ):
        with pytest.raises(UsageError, match=words):
            find_partitions(places)
