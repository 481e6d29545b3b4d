"""`make audit` by the real pip-audit: clean, vulnerable and "nobody knows" are three answers."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from offsetstream.embedded.ports import LOOPBACK

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
CLEAN, VULNERABLE, WRONG_USAGE, NOT_ASKED = range(4)
HASH = "--hash=sha256:74c935a1b8bb9a3947c50a54766a969d4846290e1e788ea44c1392163723c3bd"
OLD, NEW = f"jinja2==2.10 {HASH}\n", f"jinja2==3.1.6 {HASH}\n"
# As OSV has it, but for its text.
ADVISORY = {
    "id": "GHSA-462w-v97r-4m45",
    "modified": "2024-11-18T16:26:04Z",
    "published": "2019-04-10T14:30:24Z",
    "aliases": ["CVE-2019-10906"],
    "summary": "Jinja2 sandbox escape via string formatting",
    "affected": [
        {
            "package": {"ecosystem": "PyPI", "name": "jinja2", "purl": "pkg:pypi/jinja2"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.10.1"}]}],
            "versions": ["2.10"],
        }
    ],
}


def audit(file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "audit.py"), str(file), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def osv() -> Iterator[list[str]]:
    """Options that ask a database of one advisory, which answers as OSV does."""

    class Database(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            known = (asked["package"]["name"], asked["version"]) == ("jinja2", "2.10")
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"vulns": [ADVISORY]} if known else {}).encode())

        def log_message(self, *_: object) -> None:
            """Be silent."""

    with ThreadingHTTPServer((LOOPBACK, 0), Database) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield ["--vulnerability-service", "osv", "--osv-url", f"http://{LOOPBACK}:{server.server_port}/v1/query"]
        server.shutdown()
        thread.join()


def test_vulnerable_and_clean(tmp_path: Path, osv: list[str]) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(OLD)
    done = audit(file, *osv)
    assert (done.returncode, done.stderr) == (VULNERABLE, "")
    assert done.stdout == (
        "jinja2 2.10: CVE-2019-10906, mended in 2.10.1\n1 of 1 packages looked up, 1 vulnerabilities.\n"
    )
    file.write_text(NEW)
    done = audit(file, *osv)
    assert (done.returncode, done.stderr) == (CLEAN, "")
    assert done.stdout == "1 of 1 packages looked up, 0 vulnerabilities.\n"


def test_the_lock_is_one_that_it_can_read(osv: list[str]) -> None:
    done = audit(ROOT / "requirements.lock", *osv)
    assert (done.returncode, done.stderr) == (CLEAN, "")
    assert int(done.stdout.split()[0]) > 100


def test_a_database_that_is_not_reached_is_no_clean_answer(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(NEW)
    done = audit(file, "--vulnerability-service", "osv", "--osv-url", f"http://{LOOPBACK}:9/v1/query")
    assert (done.returncode, done.stdout) == (NOT_ASKED, "")
    assert done.stderr.startswith("audit: not done, nobody knows: ")


def test_a_package_that_the_database_does_not_know_is_no_clean_answer(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(f"offsetstream-is-not-there==1.0 {HASH}\n")
    done = audit(file)
    assert done.returncode == NOT_ASKED
    assert "nobody knows" in done.stderr
    assert audit(tmp_path / "none.txt").returncode == WRONG_USAGE


def test_pypi_knows_an_old_version(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(OLD)
    done = audit(file)
    if done.returncode == NOT_ASKED:
        pytest.skip(f"PyPI's database is not reached from here: {done.stderr.strip()}")
    assert done.returncode == VULNERABLE
    assert "jinja2 2.10: " in done.stdout
