"""The Databricks bundle: Databricks' own classes know every resource key, and everything that it runs exists."""

from __future__ import annotations

import json
import re
import tomllib
from importlib import import_module
from typing import Any

import pytest
from databricks.bundles.core import Resource
from databricks.bundles.dashboards import Dashboard
from databricks.bundles.jobs import Job
from databricks.bundles.schemas import Schema
from databricks.bundles.volumes import Volume

from offsetstream.cli.submitted import maintain_tables, materialize_offsets
from offsetstream.cli.verify import verify
from offsetstream.cluster.properties import librdkafka_config, read_properties, spark_options
from offsetstream.settings.places import in_hadoop, parse_checkpoint
from tests.unit.databricks.bundle import ROOT, bundle, clashes, deployed, files, references, resolved, resources

CLASSES: dict[str, type[Any]] = {"jobs": Job, "schemas": Schema, "volumes": Volume, "dashboards": Dashboard}
TARGETS = ("dev", "prod")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
VARIABLES = {"catalog": "lake", "bootstrap_server": "broker:9093", "keep_history": "30d", "trigger": "30 seconds"}
JOBS = ("materialize_offsets", "maintain_tables", "command")


def made(kind: str, declared: dict[str, Any]) -> Resource:
    """The resource as an object of Databricks' own class. Raises ValueError for a key that the class does not know."""
    resource: Resource = CLASSES[kind].from_dict(declared)
    return resource


def task(name: str) -> dict[str, Any]:
    (found,) = resources("prod")["jobs"][name]["tasks"]
    declared: dict[str, Any] = found
    return declared


def compute(name: str) -> dict[str, Any]:
    (cluster,) = resources("prod")["jobs"][name]["job_clusters"]
    declared: dict[str, Any] = cluster["new_cluster"]
    return declared


def arguments(name: str) -> list[str]:
    """The arguments that a job passes to its entry point."""
    return [resolved(each, "prod", **VARIABLES) for each in task(name)["python_wheel_task"]["parameters"]]


@pytest.mark.parametrize("target", TARGETS)
def test_every_resource_is_valid_for_databricks(target: str) -> None:
    found = resources(target)
    assert found.keys() == CLASSES.keys()
    for kind, named in found.items():
        for declared in named.values():
            made(kind, declared)


@pytest.mark.parametrize(
    ("kind", "name", "path"),
    [
        ("jobs", "materialize_offsets", ["continous"]),
        ("jobs", "materialize_offsets", ["tasks", 0, "python_wheel_task", "entrypoint"]),
        ("jobs", "maintain_tables", ["job_clusters", 0, "new_cluster", "spark_env_var"]),
        ("schemas", "kafka_offsets", ["coment"]),
        ("volumes", "checkpoints", ["volume"]),
        ("schemas", "kafka_offsets", ["grants", 0, "principle"]),
        ("dashboards", "consumer_groups", ["dataset_schemas"]),
        ("dashboards", "consumer_groups", ["permissions", 0, "group"]),
    ],
)
def test_a_misspelled_key_is_refused(kind: str, name: str, path: list[Any]) -> None:
    declared = json.loads(json.dumps(resources("prod")[kind][name]))
    at: Any = declared
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = "x"
    with pytest.raises(ValueError, match=f"Unexpected field '{path[-1]}'"):
        made(kind, declared)


def test_resource_keys_are_unique() -> None:
    assert clashes(files()) == []


@pytest.mark.parametrize(
    "more",
    [
        {"resources": {"dashboards": {"kafka_offsets": {}}}},
        {"resources": {"schemas": {"kafka_offsets": {}}}},
        {"scripts": {"kafka_offsets": {}}},
    ],
)
def test_a_key_used_twice_is_refused_whatever_the_kinds(more: dict[str, Any]) -> None:
    (refused,) = clashes({**files(), "more.yml": more})
    assert refused.startswith("multiple resources or scripts have been defined with the same key: kafka_offsets (")
    assert "resources.schemas.kafka_offsets in resources/tables.yml" in refused


def test_every_key_of_the_bundle_is_known() -> None:
    whole = bundle()
    assert whole.keys() == {"bundle", "include", "sync", "artifacts", "variables", "targets"}
    assert all(each.keys() <= {"description", "default"} for each in whole["variables"].values())
    known = {"mode", "default", "variables", "workspace", "run_as", "permissions", "presets", "resources"}
    assert all(each.keys() <= known for each in whole["targets"].values())


def test_every_reference_resolves() -> None:
    known = {f"var.{name}" for name in bundle()["variables"]}
    known |= {"workspace.file_path", "bundle.name", "bundle.target"}
    for kind, named in resources("prod").items():
        known |= {f"resources.{kind}.{name}.name" for name in named}
    used = {each for target in TARGETS for each in references(deployed(target))}
    assert used <= known
    assert {f"var.{name}" for name in bundle()["variables"]} <= used


def test_the_wheel_has_the_entry_points_that_tasks_name() -> None:
    points = PROJECT["entry-points"]["packages"]
    for name in JOBS:
        wheel = task(name)["python_wheel_task"]
        assert wheel["package_name"] == PROJECT["name"]
        assert wheel["entry_point"] not in PROJECT["scripts"]  # Databricks takes the first entry point of this name
        module, _, attribute = points[wheel["entry_point"]].partition(":")
        assert callable(getattr(import_module(module), attribute))


def test_the_parameters_are_options_of_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {}
    for name, command in {"materialize_offsets": materialize_offsets, "maintain_tables": maintain_tables}.items():
        given[name] = command.make_context(name, arguments(name), **command.context_settings).params
    which, *its_own = arguments("command")
    assert which == "verify"
    given["command"] = verify.make_context("verify", its_own).params
    run = given["materialize_offsets"]
    assert (run["tables"], run["trigger"]) == ("lake.kafka_offsets", "30 seconds")
    assert in_hadoop(parse_checkpoint(run["checkpoint"])) == "dbfs:///Volumes/lake/kafka_offsets/checkpoints"
    assert given["maintain_tables"]["tables"] == given["command"]["tables"] == run["tables"]
    assert given["command"]["command_config"] == run["command_config"]
    monkeypatch.setenv("KAFKA_USERNAME", "me")
    monkeypatch.setenv("KAFKA_PASSWORD", "sesame")
    properties = read_properties(run["command_config"])
    assert librdkafka_config(properties)["sasl.password"] == "sesame"
    assert "sesame" in spark_options(properties)["kafka.sasl.jaas.config"]


def test_secrets_come_from_a_scope_and_reach_the_job_that_needs_them() -> None:
    environment = compute("materialize_offsets")["spark_env_vars"]
    assert compute("command")["spark_env_vars"] == environment
    assert environment.keys() == {"KAFKA_USERNAME", "KAFKA_PASSWORD"}
    for value in environment.values():
        assert re.fullmatch(r"\{\{secrets/\$\{var\.secret_scope\}/[a-z-]+\}\}", value)
    assert "spark_env_vars" not in compute("maintain_tables")


def test_all_tasks_run_on_dedicated_compute_with_the_wheels_dependencies() -> None:
    extra = set(PROJECT["optional-dependencies"]["databricks"])
    needed = (extra - {"offsetstream[cluster]"}) | set(PROJECT["optional-dependencies"]["cluster"])
    for name in JOBS:
        assert compute(name)["data_security_mode"] == "SINGLE_USER"
        wheel, *libraries = task(name)["libraries"]
        assert wheel == {"whl": "../dist/*.whl"}
        assert {each["pypi"]["package"] for each in libraries} == needed


def test_spark_and_delta_come_from_the_runtime() -> None:
    installed = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["databricks"]]
    installed += PROJECT["optional-dependencies"]["cluster"]
    assert not [each for each in installed if re.match(r"pyspark|delta-spark|pandas|offsetstream\[(?!cluster)", each)]


def test_the_wheel_is_built_where_jobs_read_it() -> None:
    (artifact,) = bundle()["artifacts"].values()
    project = ROOT / artifact["path"]
    assert (project / "pyproject.toml").exists()
    for name in JOBS:
        taken = ROOT / "resources" / task(name)["libraries"][0]["whl"]
        assert taken.parent.resolve() == (project / "dist").resolve()


def test_jobs_start_by_themselves_in_production_only() -> None:
    """A target's mode does not override a pause that the job sets itself.

    Without it a development copy would run at once.
    """
    for target in TARGETS:
        jobs = resources(target)["jobs"]
        for name, trigger in {"materialize_offsets": "continuous", "maintain_tables": "schedule"}.items():
            assert "pause_status" not in jobs[name][trigger]
        assert jobs["materialize_offsets"]["max_concurrent_runs"] == 1
    modes = {name: (each["mode"], each.get("presets")) for name, each in bundle()["targets"].items()}
    assert modes == {"dev": ("development", None), "prod": ("production", {"trigger_pause_status": "UNPAUSED"})}


def test_production_belongs_to_the_service_principal() -> None:
    prod, who = deployed("prod"), "${var.service_principal}"
    assert prod["run_as"] == {"service_principal_name": who}
    assert prod["workspace"]["root_path"].startswith(f"/Workspace/Users/{who}/")  # not Shared, where all may write
    assert [(each["level"], each["service_principal_name"]) for each in prod["permissions"]] == [("CAN_MANAGE", who)]
    for kind, name in (("schemas", "kafka_offsets"), ("volumes", "checkpoints")):
        assert prod["resources"][kind][name]["lifecycle"] == {"prevent_destroy": True}
        assert {"lifecycle", "grants"}.isdisjoint(resources("dev")[kind][name])


def test_readers_may_only_read_and_see_no_checkpoints() -> None:
    found = resources("prod")
    schema, volume = found["schemas"]["kafka_offsets"], found["volumes"]["checkpoints"]
    granted = {each["principal"]: set(each["privileges"]) for each in schema["grants"]}
    assert granted["${var.readers}"] == {"USE_SCHEMA", "SELECT"}
    assert granted["${var.service_principal}"] >= {"USE_SCHEMA", "CREATE_TABLE"}  # see docs/how-to/stores.md
    assert [each["principal"] for each in volume["grants"]] == ["${var.service_principal}"]


NOTEBOOKS = {"notebooks/first_queries.sql", "notebooks/explore.ipynb"}


def test_only_files_that_jobs_read_are_uploaded() -> None:
    found = (file for folder in bundle()["sync"]["paths"] for file in (ROOT / folder).rglob("*") if file.is_file())
    up = {str(file.relative_to(ROOT)) for file in found}
    named = set(re.findall(r"\$\{workspace\.file_path\}/(\S+)", (ROOT / "resources/jobs.yml").read_text("utf-8")))
    assert named == {"resources/kafka.properties"}
    assert up == named | NOTEBOOKS | files().keys() - {"databricks.yml"}


def test_the_documented_stop_names_the_schema_of_each_target() -> None:
    text = (ROOT / "docs/how-to/databricks.md").read_text("utf-8")
    schema = resolved("${var.catalog}.${resources.schemas.kafka_offsets.name}", "prod", **VARIABLES)
    in_dev = schema.replace(".", ".dev_ana_")  # the name that the CLI makes for ana@example.com
    stops = re.findall(r"`databricks bundle run command(.*) -- stop --tables (\S+)`", text)
    assert stops == [(" --target prod", schema), ("", in_dev)]


def test_the_dashboard_shows_only_columns_of_its_queries() -> None:
    (resource,) = resources("prod")["dashboards"].values()
    dashboard = json.loads((ROOT / "resources" / resource["file_path"]).read_text("utf-8"))
    queries = {each["name"]: "".join(each["queryLines"]) for each in dashboard["datasets"]}
    (page,) = dashboard["pages"]
    shown = set()
    for widget in (each["widget"] for each in page["layout"]):
        (query,) = widget["queries"]
        columns = {each["name"] for each in query["query"]["fields"]}
        encodings = widget["spec"]["encodings"]
        assert {each["fieldName"] for each in encodings.pop("columns", encodings.values())} == columns
        assert all(re.search(rf"\b{column}\b", queries[query["query"]["datasetName"]]) for column in columns)
        shown.add(query["query"]["datasetName"])
    assert shown == queries.keys()
