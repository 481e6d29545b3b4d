"""Databricks' own CLI reads the bundle and queries a workspace, here a stub on loopback.

No registry of the tests has the CLI: whoever runs these tests names its path.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

import jsonschema
import pytest

from tests.unit.databricks.bundle import ROOT, clashes, deployed, files, resources

pytestmark = pytest.mark.nightly

CLI = "OFFSETSTREAM_TEST_DATABRICKS"
NEEDED = f"name Databricks' CLI, 1.13 or later, in {CLI}: docs.databricks.com/dev-tools/cli/install tells how to get it"
ANA = "ana@example.com"
ROBOT = "11111111-2222-3333-4444-555555555555"
VARIABLES = {
    "catalog": "lake",
    "bootstrap_server": "broker:9093",
    "warehouse_id": "0123456789abcdef",
    "node_type_id": "m7g.xlarge",
}
PRODUCTION = {"service_principal": ROBOT, "readers": "kafka-readers"}


class Workspace(BaseHTTPRequestHandler):
    """A stub workspace: it knows the current user, and every requested folder exists and belongs to that user."""

    user = ""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path == "/api/2.0/preview/scim/v2/Me":
            self._answer(200, {"id": "1", "userName": self.user})
        elif path == "/api/2.0/workspace/get-status" and "return_export_info" not in query:  # for files
            self._answer(200, {"path": parse_qs(query)["path"][0], "object_type": "DIRECTORY", "object_id": 1})
        elif path == "/api/2.0/permissions/directories/1":
            who = "user_name" if "@" in self.user else "service_principal_name"
            managed = {who: self.user, "all_permissions": [{"permission_level": "CAN_MANAGE"}]}
            self._answer(200, {"object_id": "/directories/1", "access_control_list": [managed]})
        else:
            self._answer(404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": f"not there: {self.path}"})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(200, {})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


class Cli:
    """The CLI, logged in to a workspace as a user, with telemetry and update checks off."""

    def __init__(self, program: str, home: Path, folder: Path) -> None:
        self.program, self.home, self.folder = program, home, folder

    def __call__(self, user: str, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Of", (Workspace,), {"user": user}))
        serving = Thread(target=server.serve_forever)
        serving.start()
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("DATABRICKS_", "BUNDLE_"))},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # for uv, which builds the wheel
            "HOME": str(self.home),
            "DATABRICKS_CACHE_DIR": str(self.home / "cache"),
            "DATABRICKS_CLI_DISABLE_TELEMETRY": "1",
            "DATABRICKS_CLI_DISABLE_UPDATE_CHECK": "1",
            "DATABRICKS_HOST": f"http://127.0.0.1:{server.server_port}",
            "DATABRICKS_TOKEN": "none",
            "DATABRICKS_BUNDLE_ENGINE": "direct",  # the other engine is Terraform, which the CLI would download
            **{f"BUNDLE_VAR_{name}": value for name, value in variables.items()},
        }
        try:
            return subprocess.run(
                [self.program, *command],
                cwd=self.folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        finally:
            server.shutdown()
            serving.join()
            server.server_close()


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """The CLI in a copy of the bundle."""
    program = os.environ.get(CLI)
    if program is None or shutil.which(program) is None:
        pytest.fail(f"{program} is no program: {NEEDED}" if program else NEEDED, pytrace=False)
    folder = tmp_path / "bundle"
    for name in ("resources", "notebooks", "dashboards", "offsetstream"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("databricks.yml", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return Cli(program, tmp_path, folder)


def test_two_resources_with_one_key_are_refused(cli: Cli) -> None:
    file = cli.folder / "resources/dashboard.yml"
    file.write_text(file.read_text("utf-8").replace("    consumer_groups:", "    kafka_offsets:"), "utf-8")
    done = cli(ANA, "bundle", "validate", **VARIABLES)
    (ours,) = clashes(files(cli.folder))
    assert (done.returncode, done.stderr.count(ours.partition(" (")[0])) == (1, 1), done.stderr
    for place in ("resources.dashboards.kafka_offsets", "resources.schemas.kafka_offsets"):
        assert place in done.stderr
        assert place in ours


@pytest.mark.parametrize(
    ("target", "user", "schema", "pause"),
    [("dev", ANA, "dev_ana_kafka_offsets", "PAUSED"), ("prod", ROBOT, "kafka_offsets", "UNPAUSED")],
)
def test_a_target_is_valid_and_deploys_what_is_documented(
    cli: Cli, target: str, user: str, schema: str, pause: str
) -> None:
    of_target = VARIABLES | (PRODUCTION if target == "prod" else {})
    done = cli(user, "bundle", "validate", "--strict", "--target", target, **of_target)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "Validation OK!"), done.stdout + done.stderr
    whole = json.loads(cli(user, "bundle", "validate", "--output", "json", "--target", target, **of_target).stdout)
    jobs = whole["resources"]["jobs"]
    assert whole["resources"]["schemas"]["kafka_offsets"]["name"] == schema
    assert f"lake.{schema}" in (ROOT / "docs/how-to/databricks.md").read_text("utf-8")
    pauses = [jobs["materialize_offsets"]["continuous"], jobs["maintain_tables"]["schedule"]]
    assert [each["pause_status"] for each in pauses] == [pause, pause]
    assert {each.get("run_as", {}).get("service_principal_name") for each in jobs.values()} == {
        ROBOT if target == "prod" else None
    }


def test_deploying_production_as_another_user_warns(cli: Cli) -> None:
    done = cli(ANA, "bundle", "validate", "--strict", "--target", "prod", **VARIABLES, **PRODUCTION)
    assert (done.returncode, "current deployment identity 'ana@example.com'" in done.stderr) == (1, True), done.stderr


def test_six_files_are_uploaded(cli: Cli) -> None:
    done = cli(ANA, "bundle", "sync", "--dry-run", "--full", "--output", "text", **VARIABLES)
    (listed,) = [line.removeprefix("Action: PUT: ") for line in done.stdout.splitlines() if "PUT: " in line]
    kept = {f"resources/{name}" for name in ("dashboard.yml", "jobs.yml", "kafka.properties", "tables.yml")}
    assert set(listed.split(", ")) == kept | {"notebooks/first_queries.sql", "notebooks/explore.ipynb"}


def test_the_production_plan_has_a_wheel(cli: Cli) -> None:
    done = cli(ROBOT, "bundle", "plan", "--output", "json", "--target", "prod", **VARIABLES, **PRODUCTION)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)["plan"]
    assert {each["action"] for each in plan.values()} == {"create"}
    beside = {"jobs": "permissions", "dashboards": "permissions", "schemas": "grants", "volumes": "grants"}
    own = {f"resources.{kind}.{key}": kind for kind, named in resources("prod").items() for key in named}
    assert plan.keys() == own.keys() | {f"{name}.{beside[kind]}" for name, kind in own.items()}
    (task,) = plan["resources.jobs.materialize_offsets"]["new_state"]["value"]["tasks"]
    (wheel,) = [each["whl"] for each in task["libraries"] if "whl" in each]
    assert re.fullmatch(rf"/Workspace/Users/{ROBOT}/.*/offsetstream-[\w.]+-py3-none-any\.whl", wheel)


def test_each_merged_target_matches_the_schema_of_the_cli(cli: Cli) -> None:
    # Python's regular expressions lack the Unicode classes that the schema uses for references.
    text = cli(ANA, "bundle", "schema").stdout.replace(r"[\\p{L}\\p{N}]", "[a-zA-Z0-9]").replace(r"\\p{L}", "[a-zA-Z]")
    schema = jsonschema.validators.validator_for(json.loads(text))(json.loads(text))
    for target in ("dev", "prod"):
        whole = deployed(target)
        assert [error.message for error in schema.iter_errors(whole)] == []
        for at, key in ((whole["sync"], "folders"), (whole["resources"]["jobs"]["command"]["tasks"][0], "task_name")):
            at[key] = ["x"]
            assert not schema.is_valid(whole)
            del at[key]
