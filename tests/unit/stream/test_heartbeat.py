import threading
from contextlib import suppress
from datetime import timedelta

import pytest
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from offsetstream.errors import ConflictError, LeaseError, TablesError
from offsetstream.stream import controls
from offsetstream.stream.controls import Heartbeat
from offsetstream.tables.lease import Lease, LeaseRow, read_lease, request_reload, request_stop
from offsetstream.tables.path_store import PathStore
from testkit.waiting import await_

LONG = 30.0  # seconds after which something is broken


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controls, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(controls, "BEAT_SECONDS", 0.2)


def take_over(tables: PathStore) -> Lease:
    """Take the lease of a running job between two of its heartbeats."""
    again: Retrying = Retrying(retry=retry_if_exception_type(LeaseError), stop=stop_after_attempt(50), reraise=True)
    return again(Lease.acquire, tables)


class Asked:
    """Records who requested a stop."""

    def __init__(self) -> None:
        self.by: list[str] = []
        self.at_all = threading.Event()

    def __call__(self, by: str) -> None:
        self.by.append(by)
        self.at_all.set()


def nothing() -> None:
    """Ignore requests to reload."""


@pytest.mark.parametrize("fails", [False, True])
def test_the_lease_is_released_at_the_end(tables: PathStore, fails: bool) -> None:
    lease = Lease.acquire(tables)
    with suppress(ValueError), Heartbeat(lease, Asked(), nothing):
        assert lease.read().owner == lease.owner
        if fails:
            raise ValueError("of the job")
    row = read_lease(tables)
    assert row is not None
    assert row.owner is None


def test_heartbeats_are_written_while_the_context_lasts(tables: PathStore) -> None:
    lease = Lease.acquire(tables)
    with Heartbeat(lease, Asked(), nothing):
        first = lease.read().heartbeat_at
        waited = threading.Event()
        for _ in range(int(LONG / 0.01)):
            if lease.read().heartbeat_at != first:
                break
            waited.wait(0.01)
        assert lease.read().heartbeat_at != first


def test_a_request_to_stop_reaches_the_job(tables: PathStore) -> None:
    asked, lease = Asked(), Lease.acquire(tables)
    with Heartbeat(lease, asked, nothing):
        request_stop(tables)
        assert asked.at_all.wait(LONG)
        assert asked.by[0] == lease.read().stop_requested_by


def test_a_request_to_reload_reaches_the_job_until_it_is_done(tables: PathStore) -> None:
    lease, heard, stop = Lease.acquire(tables), threading.Event(), Asked()
    with Heartbeat(lease, stop, heard.set):
        request_reload(tables, [3])
        assert heard.wait(LONG)
        heard.clear()
        assert heard.wait(LONG)
        lease.finish_reload("3")
        assert lease.read().reload_requested is None
    assert stop.by == []


def test_a_job_that_loses_the_lease_stops_with_an_error_and_does_not_release_it(tables: PathStore) -> None:
    asked = Asked()
    with (
        pytest.raises(LeaseError, match="another job has taken over the lease"),
        Heartbeat(Lease.acquire(tables), asked, nothing),
    ):
        second = take_over(tables)
        assert asked.at_all.wait(LONG)
    assert asked.by == ["the next job"]
    assert second.read().owner == second.owner


@pytest.mark.parametrize(
    ("raised", "ends_with"),
    [(ValueError("of the job"), ValueError), (ConflictError("Concurrent transaction failed"), LeaseError)],
)
def test_the_jobs_own_error_takes_precedence_over_the_lost_lease_unless_that_caused_it(
    tables: PathStore, raised: Exception, ends_with: type[Exception]
) -> None:
    asked = Asked()
    with pytest.raises(ends_with, match=r"of the job|taken over"), Heartbeat(Lease.acquire(tables), asked, nothing):
        take_over(tables)
        assert asked.at_all.wait(LONG)
        raise raised


class FailingLease(Lease):
    """Its table cannot be read for a while."""

    failures = 0

    def read(self) -> LeaseRow:
        if self.failures:
            self.failures -= 1
            raise TablesError("cannot read the table job_lease: Input/output error")
        return super().read()


def test_a_store_that_fails_for_a_moment_does_not_end_the_job(tables: PathStore) -> None:
    asked, lease = Asked(), FailingLease.acquire(tables)
    assert isinstance(lease, FailingLease)
    with Heartbeat(lease, asked, nothing):
        lease.failures = 5
        await_(lambda: not lease.failures)
        request_stop(tables)
        assert asked.at_all.wait(LONG)
    assert not asked.by[0].startswith("the lost lease")


def test_a_store_that_fails_for_longer_than_the_patience_does(tables: PathStore) -> None:
    asked, faults, lease = Asked(), list[str](), FailingLease.acquire(tables)
    assert isinstance(lease, FailingLease)
    patience = timedelta(seconds=0.1)
    with (
        pytest.raises(TablesError, match="Input/output error"),
        Heartbeat(lease, asked, nothing, patience=patience, on_fault=faults.append),
    ):
        lease.failures = 1_000_000
        assert asked.at_all.wait(LONG)
    assert faults == ["Cannot renew the lease: cannot read the table job_lease: Input/output error; trying again"]


class UnreleasableLease(Lease):
    """Its table cannot be written at the end."""

    def release(self) -> None:
        raise TablesError("cannot write to the table job_lease: Input/output error")


def test_the_jobs_own_error_takes_precedence_over_a_lease_that_cannot_be_released(tables: PathStore) -> None:
    lease = UnreleasableLease.acquire(tables)
    with pytest.raises(ValueError, match="of the job"), Heartbeat(lease, Asked(), nothing):
        raise ValueError("of the job")
    with pytest.raises(TablesError, match="job_lease"), Heartbeat(lease, Asked(), nothing):
        pass
