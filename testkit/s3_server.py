"""A real S3 server (MinIO) on the loopback address, with the settings for Spark and delta-rs."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pyarrow.fs as pafs

from offsetstream.embedded.artifacts import classpath, resolve
from offsetstream.embedded.ports import LOOPBACK, free_ports
from testkit.processes import ServerProcess
from testkit.programs import go_program

MINIO = ("github.com/minio/minio", "v0.0.0-20260212201848-7aac2a2c5b7c")
HADOOP_AWS = "org.apache.hadoop:hadoop-aws:3.4.1"  # for the Hadoop in PySpark 4.0
BUCKET = "lake"
REGION = "us-east-1"
USER, PASSWORD = "lake-user", "lake-sesame-1"


@dataclass(frozen=True)
class Request:
    """A request that the server has answered: S3's name of the API, the key or its prefix, and the HTTP status."""

    api: str
    key: str
    status: int


class S3Server:
    """The server, with one bucket. `requests` has all requests that it has answered so far, except health checks."""

    def __init__(self, endpoint: str, requests: list[Request], server: ServerProcess, command: Sequence[str]) -> None:
        self.endpoint, self._server, self._command = endpoint, server, command
        self.pid = self._start()
        self.bucket = BUCKET
        self.requests = requests

    def _start(self) -> int:
        return self._server.start("s3", self._command, lambda: _answers(self.endpoint))

    @contextmanager
    def away(self) -> Iterator[None]:
        """Let the server refuse connections in the context; it keeps its objects."""
        self._server.end("s3")
        try:
            yield
        finally:
            self.pid = self._start()

    def uri(self, name: str) -> str:
        """Return the URI of a folder, for delta-rs and Spark."""
        return f"s3a://{self.bucket}/{name}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables for delta-rs; Hadoop reads the keys, too."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": USER,
            "AWS_SECRET_ACCESS_KEY": PASSWORD,
            "AWS_REGION": REGION,
            "AWS_ALLOW_HTTP": "true",
        }

    @property
    def spark_conf(self) -> dict[str, str]:
        """The settings for Spark. hadoop-aws is on the class path, so that its half gigabyte is not copied."""
        return {
            "spark.driver.extraClassPath": classpath(resolve([HADOOP_AWS])),
            "spark.hadoop.fs.s3a.endpoint": self.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": REGION,
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }

    @property
    def spark_options(self) -> list[str]:
        """The same settings as options of `offsetstream run`."""
        return [part for name, value in self.spark_conf.items() for part in ("--conf", f"{name}={value}")]

    def files(self) -> pafs.FileSystem:
        """Return a third client, besides delta-rs and Hadoop, for the server's objects (`lake/tables/...`)."""
        return pafs.S3FileSystem(
            access_key=USER,
            secret_key=PASSWORD,
            endpoint_override=self.endpoint,
            region=REGION,
            allow_bucket_creation=True,
        )


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run the server in the context. Its data is deleted at the end."""
    requests: list[Request] = []
    with _audit(requests) as audit, ServerProcess() as server:
        port, console = free_ports(2)
        endpoint = f"http://{LOOPBACK}:{port}"
        settings = {
            "MINIO_ROOT_USER": USER,
            "MINIO_ROOT_PASSWORD": PASSWORD,
            "MINIO_BROWSER": "off",
            "MINIO_AUDIT_WEBHOOK_ENABLE_TESTS": "on",
            "MINIO_AUDIT_WEBHOOK_ENDPOINT_TESTS": audit,
        }
        places = ("--address", f"{LOOPBACK}:{port}", "--console-address", f"{LOOPBACK}:{console}")
        program = ["env", *(f"{name}={value}" for name, value in settings.items()), str(go_program(*MINIO))]
        command = [*program, "server", *places, str(server.folder / "data")]
        found = S3Server(endpoint, requests, server, command)
        found.files().create_dir(BUCKET)
        yield found


@contextmanager
def in_environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Add the settings to the environment of this process, and so of all that it starts, in the context."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _audit(requests: list[Request]) -> Iterator[str]:
    """Listen for the server's audit log, and yield the address. The server logs a request after it has answered."""

    class Audit(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
            api: dict[str, Any] = told.get("api", {})
            if api.get("bucket"):
                key = api.get("object") or told.get("requestQuery", {}).get("prefix", "")
                requests.append(Request(api["name"], key, api.get("statusCode", 0)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    listener = ThreadingHTTPServer((LOOPBACK, 0), Audit)
    thread = threading.Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{listener.server_port}"
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()


def _answers(endpoint: str) -> bool:
    try:
        with urlopen(f"{endpoint}/minio/health/ready", timeout=5) as answer:  # noqa: S310 - a test's own server
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False
