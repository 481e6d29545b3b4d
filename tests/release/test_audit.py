"""`make audit` with the real pip-audit and the real jars: clean, vulnerable and "nobody knows" are three answers."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from offsetstream.embedded.ports import LOOPBACK

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
CLEAN, VULNERABLE, WRONG_USAGE, NOT_ASKED = range(4)
HASH = "--hash=sha256:74c935a1b8bb9a3947c50a54766a969d4846290e1e788ea44c1392163723c3bd"
OLD, NEW = f"jinja2==2.10 {HASH}\n", f"jinja2==3.1.6 {HASH}\n"
NO_OSV = ("--osv-url", f"http://{LOOPBACK}:9/v1/query")
# An OSV advisory without its text.
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
OF_KAFKA = {
    "id": "GHSA-vgq5-3255-v292",
    "aliases": ["BIT-kafka-2025-27817", "CVE-2025-27817"],
    "affected": [
        {
            "package": {"ecosystem": "Maven", "name": "org.apache.kafka:kafka-clients"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "3.1.0"}, {"fixed": "3.9.1"}]}],
        }
    ],
}
KAFKA = "org.apache.kafka:kafka-clients"


def audit(*arguments: Path | str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "audit.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def osv() -> Iterator[list[str]]:
    """Options that query a stub of OSV with two advisories, which returns each batch in two pages."""

    class Database(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.answer(self.batch(asked["queries"]) if self.path == "/v1/querybatch" else self.query(asked))

        def do_GET(self) -> None:
            assert self.path == "/v1/vulns/GHSA-vgq5-3255-v292"
            self.answer(OF_KAFKA)

        def query(self, asked: dict[str, Any]) -> dict[str, Any]:
            known = (asked["package"]["name"], asked["version"]) == ("jinja2", "2.10")
            return {"vulns": [ADVISORY]} if known else {}

        def batch(self, queries: list[dict[str, Any]]) -> dict[str, Any]:
            assert len(queries) <= 1000
            return {"results": [self.page(each) for each in queries]}

        def page(self, asked: dict[str, Any]) -> dict[str, Any]:
            package = asked["package"]
            if (package["ecosystem"], package["name"], asked["version"]) != ("Maven", KAFKA, "3.9.0"):
                return {}
            if "page_token" not in asked:
                return {"next_page_token": "second"}
            return {"vulns": [{"id": "GHSA-vgq5-3255-v292", "modified": "2025-06-10T00:00:00Z"}]}

        def answer(self, said: object) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(said).encode())

        def log_message(self, *_: object) -> None:
            """Be silent."""

    with ThreadingHTTPServer((LOOPBACK, 0), Database) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield ["--vulnerability-service", "osv", "--osv-url", f"http://{LOOPBACK}:{server.server_port}/v1/query"]
        server.shutdown()
        thread.join()


def jar(path: Path, *packages: str) -> Path:
    """Write a jar that, as Maven does, declares the `packages` in it (`group:artifact:version`)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as opened:
        opened.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
        for each in packages:
            group, artifact, version = each.split(":")
            properties = f"#Created by Maven\nartifactId={artifact}\ngroupId={group}\nversion={version}\n"
            opened.writestr(f"META-INF/maven/{group}/{artifact}/pom.properties", properties)
    return path


@pytest.fixture(scope="module")
def jars() -> dict[str, Any]:
    """The contents of scripts/audit_jars.py, with `parts`, `nameless` and `found` for all jars that we run and ship."""
    script = runpy.run_path(str(ROOT / "scripts" / "audit_jars.py"))
    listed = json.loads(script["LIST"].read_text())
    bundles, missing = script["ours"]()
    parts, nameless = script["read"](bundles, listed["groups"])
    found = script["ask_list"](parts, listed["advisories"])
    return {**script, "listed": listed, "bundles": bundles, "missing": missing, "parts": parts,
            "nameless": nameless, "found": found}  # fmt: skip


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


def test_pip_audit_can_read_the_lock(osv: list[str]) -> None:
    done = audit(ROOT / "requirements.lock", *osv)
    assert (done.returncode, done.stderr) == (CLEAN, "")
    assert int(done.stdout.split()[0]) > 100


def test_an_unreachable_database_is_not_a_clean_answer(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(NEW)
    done = audit(file, "--vulnerability-service", "osv", *NO_OSV)
    assert (done.returncode, done.stdout) == (NOT_ASKED, "")
    assert done.stderr.startswith("audit: not done, nobody knows: ")


def test_a_package_unknown_to_the_database_is_not_a_clean_answer(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(f"offsetstream-is-not-there==1.0 {HASH}\n")
    done = audit(file)
    assert done.returncode == NOT_ASKED
    assert "nobody knows" in done.stderr
    assert audit(tmp_path / "none.txt").returncode == WRONG_USAGE
    assert audit(file, "--osv-uri", "x").returncode == WRONG_USAGE


def test_pypi_reports_a_vulnerable_version(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(OLD)
    done = audit(file)
    if done.returncode == NOT_ASKED:
        pytest.skip(f"PyPI's database is not reached from here: {done.stderr.strip()}")
    assert done.returncode == VULNERABLE
    assert "jinja2 2.10: " in done.stdout


def test_osv_reports_a_vulnerable_jar(tmp_path: Path, osv: list[str]) -> None:
    old = jar(tmp_path / "shaded-1.0.jar", "org.example:shaded:1.0", f"{KAFKA}:3.9.0")
    done = audit(old, *osv)
    assert (done.returncode, done.stderr) == (VULNERABLE, "")
    assert done.stdout == (
        "org.apache.kafka:kafka-clients 3.9.0: GHSA-vgq5-3255-v292, CVE-2025-27817, mended in 3.9.1; "
        "the jars given: shaded-1.0.jar\n"
        "2 packages in 1 jars looked up, 1 vulnerabilities, 1 new.\n"
    )
    done = audit(jar(tmp_path / "kafka-clients-3.9.2.jar", f"{KAFKA}:3.9.2"), *osv)
    assert (done.returncode, done.stderr) == (CLEAN, "")
    assert done.stdout == "1 packages in 1 jars looked up, 0 vulnerabilities, 0 new.\n"


def test_without_osv_the_dated_list_answers_and_nothing_is_clean(tmp_path: Path) -> None:
    done = audit(jar(tmp_path / "kafka-clients-3.9.0.jar", f"{KAFKA}:3.9.0"), *NO_OSV)
    assert done.returncode == VULNERABLE
    assert "GHSA-vgq5-3255-v292, CVE-2025-27817, mended in 3.9.1;" in done.stdout
    assert re.search(r"looked up by the list of 20\d\d-\d\d-\d\d \(OSV is not reached: ", done.stdout)
    done = audit(jar(tmp_path / "kafka-clients-3.9.2.jar", f"{KAFKA}:3.9.2"), *NO_OSV)
    assert (done.returncode, done.stderr) == (NOT_ASKED, "audit: nobody knows what came after the list\n")


def test_a_jar_without_a_name_inside_is_named_by_its_file_and_folders(tmp_path: Path, osv: list[str]) -> None:
    in_ivy = jar(tmp_path / "org.apache.kafka" / "kafka-clients" / "jars" / "kafka-clients-3.9.0.jar")
    assert audit(in_ivy, *osv).returncode == VULNERABLE
    done = audit(jar(tmp_path / "mystery-1.0.jar"), *osv)
    assert done.returncode == NOT_ASKED
    assert done.stderr == "audit: of 1 nobody knows: mystery-1.0.jar (the jars given)\n"


def test_all_jars_that_we_run_and_ship_are_read(jars: dict[str, Any]) -> None:
    assert (jars["missing"], jars["nameless"]) == ([], [])
    spark = jars["bundles"][jars["SPARK"]]
    assert len(spark) > 250
    of_spark = {part.jar for part in jars["parts"] if part.by == jars["SPARK"]}
    assert of_spark == {each.name for each in spark}
    packages = {(part.package, part.version) for part in jars["parts"]}
    assert {(KAFKA, "3.9.2"), (KAFKA, "4.3.1"), ("io.delta:delta-spark_4.0_2.13", "4.4.0")} <= packages
    assert ("org.lz4:lz4-java", "1.8.0") in packages
    inside = {part.package for part in jars["parts"] if part.jar.startswith("hadoop-client-runtime-")}
    assert {"org.eclipse.jetty:jetty-http", "com.nimbusds:nimbus-jose-jwt"} <= inside


def test_the_images_jars_are_read_from_the_dockerfile(jars: dict[str, Any]) -> None:
    text = (ROOT / "Dockerfile").read_text()
    added = jars["dockerfile_adds"]()
    assert added == [("org.apache.hadoop:hadoop-aws:3.4.1",)]
    assert jars["dockerfile_adds"](text.replace("hadoop-aws:3.4.1", "hadoop-aws:3.4.9")) == [
        ("org.apache.hadoop:hadoop-aws:3.4.9",)
    ]
    assert text.count("resolve(") == len(added) + 1, "a line of the Dockerfile resolves jars that nobody audits"
    assert "resolve(connectors())" in text
    assert ("org.apache.hadoop:hadoop-aws", "3.4.1") in {(part.package, part.version) for part in jars["parts"]}


def test_known_findings_exist_and_have_a_reason(jars: dict[str, Any]) -> None:
    found = {(each.part.by, each.id) for each in jars["found"]}
    for group in jars["listed"]["known"]:
        gone = {id for id in group["ids"] if (group["by"], id) not in found}
        assert not gone, f"{group['by']} no longer has {sorted(gone)}: take them out of scripts/jar_advisories.json"
        assert len(group["reason"]) > 20
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", group["since"])


def test_known_findings_are_printed_but_do_not_set_the_exit_code(
    jars: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    def told(known: list[dict[str, Any]], *, every: bool = False) -> tuple[int, list[str]]:
        code = jars["tell"](1, jars["parts"], jars["found"], known, " by the list", [], every=every)
        return code, capsys.readouterr().out.splitlines()

    known = jars["listed"]["known"]
    code, lines = told(known)
    assert code == NOT_ASKED
    assert [line.startswith("known since ") for line in lines] == [True] * len(known) + [False]
    code, lines = told(known, every=True)
    assert code == NOT_ASKED
    assert len(lines) == len({*jars["found"]}) + len(known) + 1
    code, lines = told(known[1:])
    assert code == VULNERABLE
    assert lines[0].split("; ")[1].startswith(f"{known[0]['by']}: ")


def test_versions_sort_as_in_maven(jars: dict[str, Any]) -> None:
    rising = "2.0-alpha1 2.0-beta9 2.0-rc1 2.0 2.0.1 2.10 4.1.91.Final 4.1.118.Final 4.1.118.1 4.2.0.Alpha1 4.2.0.Final"
    rising += " 9.4.57 9.4.57.v20241219 9.4.60 33.4.0-jre 33.4.1"
    assert sorted(reversed(rising.split()), key=jars["order"]) == rising.split()  # noqa: C414  # a stable sort hides ties
    for one, other in (("4.1.0.Final", "4.1"), ("3.0.0-alpha-1", "3-alpha1"), ("1.0-cr1", "1.0.0-RC1"), ("2", "2.0.0")):
        assert jars["order"](one) == jars["order"](other)
