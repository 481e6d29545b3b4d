"""The HTTP server for Prometheus and health checks: /metrics, /healthz and /readyz only.

Metrics have names of groups. A page in a browser could read them by DNS rebinding: its own name then resolves to the
address of this server. So /metrics answers only if the Host is an IP address, or a name that is known to be ours.
"""

from __future__ import annotations

import ipaddress
import json
import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import TYPE_CHECKING, TextIO
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from offsetstream.errors import UsageError
from offsetstream.metrics.job_metrics import ReplayPosition

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_TEXT, _JSON = ("Content-Type", "text/plain; charset=utf-8"), ("Content-Type", "application/json")
_METHODS = ("GET", "HEAD")
_HOST = re.compile(r"(?:\[([^\[\]]*)\]|([^\[\]:]*))(?::\d*)?")  # an IPv6 address, or a name or IPv4 address; and a port
_REFUSAL = (
    b"/metrics is not served under this host name: ask by IP address or localhost, or allow the name with "
    b"--metrics-allowed-host (setting metrics-allowed-host).\n"
)


class _Server(ThreadingWSGIServer):
    request_queue_size = 128

    def server_bind(self) -> None:
        """Listen without wsgiref's look-up of the host name, which may block."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect early."""


class _Handler(WSGIRequestHandler):
    timeout = 30  # seconds; for clients that connect and send nothing

    def log_message(self, *_: object) -> None:
        """Do not log scrapes."""

    def get_stderr(self) -> TextIO:
        """Return a discarded stream: wsgiref reports early disconnects there."""
        return StringIO()


@contextmanager
def serving(
    address: str,
    port: int,
    registry: CollectorRegistry,
    standing: Callable[[], ReplayPosition],
    allowed_hosts: Sequence[str] = (),
    stalled: Callable[[], str | None] = lambda: None,
) -> Iterator[str]:
    """Listen while the context lasts, and yield the URL. Port 0 selects a free port.

    /metrics is also served under the `allowed_hosts`, names in lower case without a port. `stalled` returns what makes
    no progress, if anything: /healthz then answers 503. Raises UsageError if it cannot listen.
    """
    hosts = _Hosts([*allowed_hosts, address])
    try:
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        kind = type("_ServerOfFamily", (_Server,), {"address_family": family})
        application = _application(registry, standing, hosts, stalled)
        server: WSGIServer = make_server(address, port, application, kind, _Handler)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"cannot listen on {address}:{port} for metrics: {reason}; give another metrics-port or metrics-address"
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    host = f"[{address}]" if ":" in address else address
    try:
        yield f"http://{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Hosts:
    """The names under which /metrics is served."""

    def __init__(self, names: Iterable[str]) -> None:
        self._own = socket.gethostname().lower()
        self._names = {"localhost", self._own, self._own.partition(".")[0], *map(str.lower, names)} - {""}

    def allow(self, header: str | None) -> bool:
        """Whether to answer a request with this Host header. None, as in HTTP 1.0, is no browser's."""
        if header is None:
            return True
        host = _HOST.fullmatch(header.strip())
        if host is None:
            return False
        if host[1] is not None:
            return _is_address(host[1], ipaddress.IPv6Address)
        name = host[2].lower().removesuffix(".")
        return name in self._names or _is_address(name, ipaddress.IPv4Address) or self._is_own(name)

    def _is_own(self, name: str) -> bool:
        """Whether it is this machine's name with its domain. Only a name that may be it is worth the slow look-up."""
        if not name.startswith(f"{self._own}.") or name != socket.getfqdn().lower():
            return False
        self._names.add(name)
        return True


def _is_address(text: str, kind: Callable[[str], object]) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


def _application(
    registry: CollectorRegistry,
    standing: Callable[[], ReplayPosition],
    hosts: _Hosts,
    stalled: Callable[[], str | None],
) -> WSGIApplication:
    metrics = make_wsgi_app(registry)
    one_at_a_time = threading.Lock()  # each scrape builds the complete text

    def scrape(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        is_head = environ["REQUEST_METHOD"] == "HEAD"
        if is_head:
            environ["REQUEST_METHOD"] = "GET"
        with one_at_a_time:
            try:
                body = list(metrics(environ, start))
            except (TypeError, ValueError):  # the Accept header names an invalid format
                environ["HTTP_ACCEPT"] = ""
                body = list(metrics(environ, start))
        return [b""] if is_head else body

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics" and not hosts.allow(environ.get("HTTP_HOST")):
            start("421 Misdirected Request", [_TEXT])
            return [b"" if environ["REQUEST_METHOD"] == "HEAD" else _REFUSAL]
        if path == "/metrics":
            return scrape(environ, start)
        if path not in ("/healthz", "/readyz"):
            start("404 Not Found", [_TEXT])
            return [b"Not found. Use /metrics, /healthz or /readyz.\n"]
        if environ["REQUEST_METHOD"] not in _METHODS:
            start("405 Method Not Allowed", [_TEXT, ("Allow", ", ".join(_METHODS))])
            return [b"Use GET.\n"]
        if path == "/healthz":
            problem = stalled()
            start("503 Service Unavailable" if problem else "200 OK", [_TEXT])
            body = f"{problem or 'ok'}\n".encode()
        else:
            now = standing()
            start("200 OK" if now.is_ready else "503 Service Unavailable", [_JSON])
            body = json.dumps({"ready": now.is_ready, "partitions": now.partitions, **now.by_state}).encode() + b"\n"
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]

    return answer
