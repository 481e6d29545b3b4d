"""The job's HTTP answers to Prometheus and to an orchestrator."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from offsetstream.embedded.ports import LOOPBACK, free_ports
from offsetstream.errors import UsageError
from offsetstream.metrics.job_metrics import JobMetrics, ReplayPosition
from offsetstream.metrics.server import serving

LOADING = ReplayPosition(by_state={"owned": 49, "loading": 1})
READY = ReplayPosition(by_state={"owned": 50})


@pytest.fixture
def metrics() -> JobMetrics:
    return JobMetrics()


@pytest.fixture
def url(metrics: JobMetrics) -> Iterator[str]:
    with serving(LOOPBACK, 0, metrics.registry, metrics.standing) as found:
        yield found


def test_it_listens_on_ipv6_addresses(metrics: JobMetrics) -> None:
    with serving("::1", 0, metrics.registry, metrics.standing) as url:
        assert ask(url, "/healthz") == (200, "ok\n")


def ask(url: str, path: str, method: str = "GET") -> tuple[int, str]:
    where = urlsplit(url)
    connection = HTTPConnection(str(where.hostname), where.port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("standing", "status"),
    [(ReplayPosition(), 503), (LOADING, 503), (READY, 200), (ReplayPosition(by_state={"failed": 2}), 503)],
)
def test_a_job_is_ready_once_it_owns_all_partitions(
    url: str, metrics: JobMetrics, standing: ReplayPosition, status: int
) -> None:
    metrics.watch(lambda: standing)
    found, body = ask(url, "/readyz")
    told = {"ready": status == 200, "partitions": standing.partitions, **standing.by_state}
    assert (found, json.loads(body)) == (status, told)
    assert ask(url, "/healthz") == (200, "ok\n")


def test_a_scrape_shows_the_current_values(url: str, metrics: JobMetrics) -> None:
    metrics.watch(lambda: ReplayPosition(behind_records=7))
    assert "\noffsetstream_behind_records 7.0\n" in ask(url, "/metrics")[1]
    metrics.watch(lambda: ReplayPosition(behind_records=8))
    assert "\noffsetstream_behind_records 8.0\n" in ask(url, "/metrics")[1]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/metrics/../etc", 404),
        ("POST", "/readyz", 405),
        ("DELETE", "/metrics", 405),
        ("HEAD", "/healthz", 200),
        ("HEAD", "/metrics", 200),
    ],
)
def test_other_paths_and_methods_are_refused(url: str, method: str, path: str, status: int) -> None:
    assert ask(url, path, method)[0] == status


OWN = socket.gethostname()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((host, 200) for host in ("127.0.0.1", "127.0.0.1:9464", "10.0.0.7", "[::1]", "[2001:db8::7]:9464")),
        *((host, 200) for host in ("localhost", "LocalHost:9464", "localhost.", OWN, f"{OWN.upper()}:9464", None)),
        *((host, 200) for host in (socket.getfqdn(), "job", "Job:9464", "offsetstream.example.com")),
        *((host, 421) for host in ("rebound.example.com", "rebound.example.com:9464", "example.com", "jobs", "")),
        *((host, 421) for host in ("127.0.0.1.example.com", "localhost.example.com", "::1", "[job]", "[127.0.0.1]")),
        *((host, 421) for host in ("job:9464:1", "job@evil", "localhost,evil", "1.2.3", f"{OWN}.rebound.example.com")),
    ],
)
def test_metrics_answer_to_addresses_and_allowed_names_only(metrics: JobMetrics, host: str | None, status: int) -> None:
    """Otherwise a page could read the group names in them by DNS rebinding. Probes ask by any name."""
    allowed = ("job", "offsetstream.example.com")
    with serving(LOOPBACK, 0, metrics.registry, metrics.standing, allowed) as url:
        found, body = raw(url, "/metrics", host)
        assert found == status
        if status == 421:
            assert "--metrics-allowed-host" in body
            assert body.count("\n") == 1
            assert raw(url, "/metrics", host, "HEAD") == (421, "")
        else:
            assert "offsetstream_behind_records" in body
        assert raw(url, "/healthz", host) == (200, "ok\n")
        assert raw(url, "/readyz", host)[0] == 503


def test_metrics_answer_to_the_name_that_the_server_listens_at(metrics: JobMetrics) -> None:
    with serving("localhost", 0, metrics.registry, metrics.standing) as url:
        assert ask(url, "/metrics")[0] == 200


def raw(url: str, path: str, host: str | None, method: str = "GET") -> tuple[int, str]:
    """Ask with this Host header; without one in HTTP 1.0."""
    where = urlsplit(url)
    header = "HTTP/1.0\r\n" if host is None else f"HTTP/1.1\r\nHost: {host}\r\n"
    with socket.create_connection((str(where.hostname), int(where.port or 0)), timeout=10) as connection:
        connection.sendall(f"{method} {path} {header}\r\n".encode())
        with connection.makefile("rb") as answer:
            head, _, body = answer.read().decode().partition("\r\n\r\n")
    return int(head.split()[1]), body


@pytest.mark.parametrize("version", ["abc", "\xff", "1.0.0", "99"])
def test_an_unknown_format_is_answered_as_text(url: str, version: str, capfd: pytest.CaptureFixture[str]) -> None:
    where = urlsplit(url)
    connection = HTTPConnection(str(where.hostname), where.port, timeout=10)
    with closing(connection):
        connection.request("GET", "/metrics", headers={"Accept": f"application/openmetrics-text; version={version}"})
        answer = connection.getresponse()
        assert (answer.status, b"offsetstream_behind_records 0.0" in answer.read()) == (200, True)
    assert capfd.readouterr().err == ""


def test_a_client_that_hangs_up_is_not_logged(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    where = urlsplit(url)
    for asked in (b"GET /metrics HTTP/1.1\r\n\r\n", b"GET /met", b"\x16\x03\x01"):
        with socket.create_connection((str(where.hostname), int(where.port or 0))) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # by RST
            connection.sendall(asked)
    assert ask(url, "/healthz") == (200, "ok\n")
    assert capfd.readouterr().err == ""


def test_an_address_in_use_is_a_one_line_error(url: str, metrics: JobMetrics) -> None:
    where = urlsplit(url)
    with (
        pytest.raises(UsageError, match=r"^cannot listen on \S+ for metrics: .+; give another metrics-port or") as told,
        serving(str(where.hostname), int(where.port or 0), metrics.registry, metrics.standing),
    ):
        pass
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("address", "port"), [("no.such.host.invalid", 0), ("a..b", 0), (LOOPBACK, 70_000), ("192.0.2.1", 0)]
)
def test_an_invalid_address_is_a_one_line_error(metrics: JobMetrics, address: str, port: int) -> None:
    with (
        pytest.raises(UsageError, match=f"^cannot listen on {address}:{port} for metrics: "),
        serving(address, port, metrics.registry, metrics.standing),
    ):
        pass


def test_the_port_is_free_as_soon_as_the_server_stops(metrics: JobMetrics) -> None:
    (port,) = free_ports(1)
    for _ in range(2):
        with serving(LOOPBACK, port, metrics.registry, metrics.standing) as url:
            assert ask(url, "/healthz") == (200, "ok\n")
