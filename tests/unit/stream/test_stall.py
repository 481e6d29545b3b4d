"""A thread that waits for ever is noticed, with what it waits for; one that is slow, or was stopped, is not."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta

import pytest
from pytest import MonkeyPatch

from offsetstream.cluster.client import Cluster
from offsetstream.errors import OffsetstreamError
from offsetstream.stream.stall import BATCH, LEASE, MAIN, StallWatch
from offsetstream.tables.location import store_at
from testkit.waiting import await_

LIMIT = timedelta(seconds=0.4)


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that accepts, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


class Watched:
    """A watch with its lines, and what it ended for."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.ends: list[str] = []
        self.watch = StallWatch(LIMIT, self.lines.append, self.ends.append)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def ask_broker(port: int) -> None:
    Cluster(f"127.0.0.1:{port}").cluster_id()


def open_table(port: int) -> None:
    store_at("s3://bucket/tables").open("job_lease")


@pytest.mark.parametrize(("ask", "place"), [(ask_broker, "a broker"), (open_table, "the tables")])
def test_what_a_thread_waits_for_is_named(
    watched: Watched, silent: int, ask: Callable[[int], None], place: str, monkeypatch: MonkeyPatch
) -> None:
    settings = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
    for name, value in {**settings, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}.items():
        monkeypatch.setenv(name, value)

    def wait() -> None:
        with watched.watch.part(LEASE) as step, suppress(OffsetstreamError):
            step()
            ask(silent)

    threading.Thread(target=wait, daemon=True).start()
    with watched.watch.watching():
        await_(lambda: bool(watched.ends), meanwhile=lambda: watched.watch.beat(MAIN))
    assert LEASE in watched.ends[0]
    assert f"it waits for {place}" in watched.ends[0]
    assert "has made no progress for" in watched.lines[0]


def test_a_part_that_steps_or_rests_is_not_stalled(watched: Watched) -> None:
    with watched.watch.watching():
        watched.watch.beat(BATCH)
        watched.watch.rest(BATCH)
        until = time.monotonic() + 4 * LIMIT.total_seconds()
        while time.monotonic() < until:
            watched.watch.beat(MAIN)
            time.sleep(0.01)
        assert watched.watch.stalled is None
    assert (watched.lines, watched.ends) == ([], [])


def test_progress_after_a_stall_is_said(watched: Watched) -> None:
    with watched.watch.watching():
        await_(lambda: watched.watch.stalled is not None)
        watched.watch.beat_of_thread()
        await_(lambda: watched.watch.stalled is None)
    assert MAIN in watched.lines[0]
    assert "again" in watched.lines[1]


def test_the_time_in_which_the_process_stood_still_does_not_count() -> None:
    """A laptop that slept must not end its job."""
    program = """
import time
from datetime import timedelta
from offsetstream.stream.stall import MAIN, StallWatch

watch = StallWatch(timedelta(seconds=2), print, print)
with watch.watching():
    print("ready", flush=True)
    for _ in range(20):
        time.sleep(0.1)
        watch.beat(MAIN)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(5)
        os.kill(process.pid, signal.SIGCONT)
        assert process.stdout.read() == ""
    assert process.returncode == 0
