from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.errors import UnreachableError
from offsetstream.stream.monitor.truncation import UNKNOWN, EpochEnd, TruncationDetector
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.stream.partitions.coordinators import EpochStart
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.transaction import BatchId
from testkit.tables import append_rows

END = 50


class Log:
    """The leader epochs of the log and their start offsets, as the leader has them, and the requests it got."""

    def __init__(self, *starts: tuple[int, int], end: int = END) -> None:
        self.starts = sorted(starts)
        self.end = end
        self.answers: bool | None = True  # None: it cannot be reached; False: it leads no more
        self.is_old = False
        self.asked: list[dict[int, tuple[int, int]]] = []

    def ends(self, asked: Mapping[int, tuple[int, int]]) -> dict[int, EpochEnd]:
        if asked:
            self.asked.append(dict(asked))
        if asked and self.answers is None:
            raise UnreachableError("no broker answers")
        return {number: self._end(epoch) for number, (_, epoch) in asked.items() if self.answers}

    def _end(self, asked: int) -> EpochEnd:
        """Like Kafka's LeaderEpochFileCache.endOffsetFor."""
        if self.is_old:
            return UNKNOWN
        below = [epoch for epoch, _ in self.starts if epoch <= asked]
        above = [start for epoch, start in self.starts if epoch > asked]
        return EpochEnd(max(below, default=asked), min(above, default=self.end))


@pytest.fixture
def book(tables: PathStore) -> PartitionBook:
    return PartitionBook(tables, range(3))


def seen(book: PartitionBook, epoch: int, end: int = END, partitions: tuple[int, ...] = (0, 1, 2)) -> None:
    book.observe({number: PartitionEnds(0, end, end, 5, epoch, datetime.now(UTC)) for number in partitions})


def logs(book: PartitionBook, log: Log) -> TruncationDetector:
    return TruncationDetector(book, None, lambda: "fc7eX-5oQtGa1Yl2yq1bQA", log.ends)


def loaded(book: PartitionBook, log: Log, epoch: int) -> TruncationDetector:
    """A book whose partitions are applied up to `END`, with this leader epoch."""
    seen(book, epoch)
    found = logs(book, log)
    assert found.start_new_logs() == []
    for number in book.partitions:
        book.start_load({number: END})
        book.finish_load(number, 10, 2, 4)
    book.write(BatchId(1, -1))
    log.asked.clear()
    return found


def test_no_query_while_no_epoch_rises(book: PartitionBook) -> None:
    log = Log((9, 0))
    found = loaded(book, log, 9)
    seen(book, 9)
    assert found.start_new_logs() == []
    assert log.asked == []
    assert [row.applied_leader_epoch for row in book.rows.values()] == [9, 9, 9]


def test_a_new_leader_with_everything_applied_keeps_the_log(book: PartitionBook) -> None:
    log = Log((9, 0))
    found = loaded(book, log, 9)
    log.starts.append((10, END))
    seen(book, 10, partitions=(1,))
    assert found.start_new_logs() == []
    assert log.asked == [{1: (10, 9)}, {1: (10, 9)}]  # the end of the epoch applied, and the start of the new one
    assert not book.coordinators.raised
    assert book.epochs.of(1) == 9
    book.advance({1: END + 1})
    assert book.epochs.of(1) == 10


@pytest.mark.parametrize("starts", [((9, 0), (11, END - 1)), ((8, 0), (11, END)), ((11, 0),)])
def test_a_truncated_log_is_a_new_log(book: PartitionBook, starts: tuple[tuple[int, int], ...]) -> None:
    """Truncated within the applied epoch, before it, or to nothing, however far the log has grown since."""
    log = Log((8, 0), (9, 10))
    found = loaded(book, log, 9)
    log.starts, log.end = list(starts), 10 * END
    seen(book, 11, end=10 * END, partitions=(1,))
    assert found.start_new_logs() == [1]
    assert (book.rows[1].log_id, book.rows[1].next_offset, book.coordinators.raised) == (1, None, {})
    assert book.epochs.of(1) is None
    assert book.rows[0].log_id == 0


def test_epochs_without_records_come_and_go(book: PartitionBook) -> None:
    """A leader without records leaves no trace in the log of the next one."""
    log = Log((7, 0), (9, END))
    found = loaded(book, log, 9)
    assert book.epochs.of(1) == 7
    for epoch in (10, 11):
        log.starts = [(7, 0), (epoch, END)]
        seen(book, epoch)
        assert found.start_new_logs() == []
    assert book.epochs.of(1) == 7


def test_the_next_job_compares_with_the_epochs_in_the_tables(book: PartitionBook, tables: PathStore) -> None:
    log = Log((7, 0), (9, END))
    loaded(book, log, 9)
    again = PartitionBook(tables, range(3))
    assert again.epochs.of(1) == 7
    seen(again, 9)
    assert logs(again, log).start_new_logs() == []
    again.advance({1: END + 1})
    assert again.epochs.of(1) == 9
    log.starts = [(7, 0), (10, END - 1)]
    seen(again, 10)
    assert logs(again, log).start_new_logs() == [0, 1, 2]


def test_a_broker_without_epochs_starts_a_new_log(book: PartitionBook) -> None:
    """A broker before Kafka 2.3 does not answer consumers."""
    log = Log((9, 0))
    log.is_old = True
    found = loaded(book, log, 9)
    assert book.epochs.of(1) is None
    seen(book, 10, partitions=(1,))
    assert found.start_new_logs() == [1]


@pytest.mark.parametrize("cut_at", [END, END - 1])
def test_tables_of_an_older_version_use_the_epoch_before_the_rise(book: PartitionBook, cut_at: int) -> None:
    log = Log((7, 0))
    loaded(book, log, 9)
    for number in book.partitions:
        book.epochs.forget(number)
    log.starts.append((10, cut_at))
    seen(book, 10, END + 5)
    assert logs(book, log).start_new_logs() == ([] if cut_at == END else [0, 1, 2])
    assert log.asked[0] == dict.fromkeys(range(3), (10, 9))


def test_a_partition_with_nothing_applied_is_not_compared(book: PartitionBook) -> None:
    log = Log((9, 0))
    found = logs(book, log)
    for epoch in (9, 10):
        seen(book, epoch)
        assert found.start_new_logs() == []
    assert not book.coordinators.raised


def test_a_silent_cluster_is_queried_again(book: PartitionBook) -> None:
    log = Log((9, 0))
    found = loaded(book, log, 9)
    log.starts.append((10, END - 1))
    seen(book, 10, partitions=(1,))
    log.answers = None
    with pytest.raises(UnreachableError):
        found.start_new_logs()
    assert set(book.coordinators.raised) == {1}
    log.answers = False  # the leader has changed once more
    assert found.start_new_logs() == []
    assert (found.unsettled, set(book.coordinators.raised)) == ({1}, {1})
    book.coordinators.lose([1])  # nobody can be asked, and the others need not wait
    assert found.start_new_logs() == []
    assert (found.unsettled, set(book.coordinators.raised)) == (set(), {1})
    log.answers = True
    seen(book, 10, partitions=(1,))
    assert found.start_new_logs() == [1]
    assert found.unsettled == set()


def test_every_log_of_a_recreated_topic_is_new(book: PartitionBook) -> None:
    log, present = Log((9, 0)), ["old"]
    loaded(book, log, 9)
    found = TruncationDetector(book, "old", lambda: present[0], log.ends)
    assert found.start_new_logs() == []
    present[0] = "new"
    assert found.start_new_logs() == [0, 1, 2]
    assert {row.log_id for row in book.rows.values()} == {1}
    assert found.start_new_logs() == []


def test_a_log_that_ends_before_the_applied_offset_is_new_when_it_is_loaded(book: PartitionBook) -> None:
    found = loaded(book, Log((9, 0)), 9)
    ends = {number: PartitionEnds(0, end, end, 5, 9, datetime.now(UTC)) for number, end in enumerate([END - 1, END])}
    assert found.start_new_logs() == []
    assert found.start_all_new_logs(ends) == {0}
    assert dict(book.log_ids) == {0: 1, 1: 0, 2: 0}


def test_a_query_cannot_continue_in_a_new_log_or_after_lost_records(book: PartitionBook) -> None:
    found = loaded(book, Log((9, 0)), 9)
    began = dict(book.log_ids)
    assert found.lost(began, {}) == []
    assert found.lost(began, {1: PartitionEnds(0, END, END, 5, 9, datetime.now(UTC))}) == []
    assert found.lost(began, {1: PartitionEnds(0, END - 1, END - 1, 5, 9, datetime.now(UTC))}) == [1]
    assert found.lost(began, {1: PartitionEnds(END + 1, END + 9, END + 9, 5, 9, datetime.now(UTC))}) == [1]
    book.start_log(2)
    assert found.lost(began, {}) == [2]
    assert found.lost(dict(book.log_ids), {}) == []
    assert found.lost({0: 0}, {}) == []  # of those that it reads


def test_the_first_epoch_of_all_has_none_before(book: PartitionBook) -> None:
    log = Log((0, 0))
    loaded(book, log, 0)
    assert log.asked == []
    assert book.epochs.starts[1] == EpochStart(0, -1, None)
    assert book.epochs.of(1) == 0


def written(folder: Path, table: str, offset: int, log_id: int = 0) -> None:
    """The rows of an interrupted batch or load."""
    append_rows(folder, table, [{"offsets_partition": 1, "record_offset": offset, "log_id": log_id}])


TABLES = ["offset_commits", "group_records", "undecodable_records", "committed_offsets", "group_cells"]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(("cut_at", "rewritten"), [(END, [1]), (END + 9, [1]), (END + 10, [])])
def test_a_log_truncated_after_the_applied_and_before_the_written_offset(
    book: PartitionBook, tables: PathStore, table: str, cut_at: int, rewritten: list[int]
) -> None:
    loaded(book, Log((9, 0)), 9)
    written(Path(tables.root), table, END + 9)
    book = PartitionBook(tables, range(3))
    seen(book, 11, end=10 * END)
    assert logs(book, Log((9, 0), (11, cut_at), end=10 * END)).start_new_logs() == rewritten


def test_records_written_after_the_leader_moved(book: PartitionBook, tables: PathStore) -> None:
    """The last applied record has epoch 7. The written ones have epoch 9, which was recorded before."""
    log = Log((7, 0), (9, END), end=2 * END)
    loaded(book, log, 9)
    assert book.epochs.of(1) == 7
    written(Path(tables.root), "offset_commits", END + 9)
    for starts, rewritten in (
        (((7, 0), (9, END), (11, END + 20)), []),
        (((7, 0), (9, END), (11, END + 9)), [1]),
        (((7, 0), (11, END)), [1]),
        (((6, 0), (9, END - 1), (11, END + 20)), [0, 1, 2]),
    ):
        book = PartitionBook(tables, range(3))
        seen(book, 11, end=10 * END)
        assert logs(book, Log(*starts, end=10 * END)).start_new_logs() == rewritten


def test_written_records_of_another_log_do_not_count(book: PartitionBook, tables: PathStore) -> None:
    log = Log((9, 0))
    found = loaded(book, log, 9)
    written(Path(tables.root), "offset_commits", END + 9, log_id=1)
    log.starts.append((10, END))
    seen(book, 10)
    assert found.start_new_logs() == []


def test_written_records_are_read_again_after_a_batch(book: PartitionBook, tables: PathStore) -> None:
    log = Log((9, 0))
    found = loaded(book, log, 9)
    log.starts.append((10, END))
    seen(book, 10)
    assert found.start_new_logs() == []
    book.written.forget()  # as a batch does before it writes, and this one failed
    written(Path(tables.root), "offset_commits", END + 9)
    log.starts.append((11, END + 5))
    seen(book, 11)
    assert found.start_new_logs() == [1]


@pytest.mark.parametrize(("cut_at", "rewritten"), [(END - 1, [1]), (END, [])])
def test_a_log_truncated_after_an_interrupted_first_load(
    book: PartitionBook, tables: PathStore, cut_at: int, rewritten: list[int]
) -> None:
    seen(book, 9)
    assert logs(book, Log((9, 0))).start_new_logs() == []
    book.start_load(dict.fromkeys(range(3), 2 * END))
    book.write(BatchId(1, -1))
    written(Path(tables.root), "offset_commits", END - 1)
    book = PartitionBook(tables, range(3))
    seen(book, 11, end=10 * END)
    assert book.next_offsets == {}
    assert logs(book, Log((9, 0), (11, cut_at), end=10 * END)).start_new_logs() == rewritten
    assert book.rows[1].log_id == len(rewritten)


def test_a_log_without_an_answer_stays_unsettled(book: PartitionBook, tables: PathStore) -> None:
    log = Log((9, 0))
    found = loaded(book, log, 9)
    written(Path(tables.root), "offset_commits", END + 9)
    book.written.forget()
    seen(book, 10)
    log.answers = False
    assert found.start_new_logs() == []
    assert found.unsettled == {0, 1, 2}
