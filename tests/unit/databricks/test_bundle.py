"""The bundle for Databricks: every key of its resources is known to Databricks' classes, and what it runs is there."""

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
from offsetstream.tables.location import in_hadoop, parse_checkpoint
from tests.unit.databricks.bundle import ROOT, bundle, references, resolved, resources

CLASSES: dict[str, type[Any]] = {"jobs": Job, "schemas": Schema, "volumes": Volume, "dashboards": Dashboard}
TARGETS = ("development", "production")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
VARIABLES = {"catalog": "lake", "bootstrap_server": "broker:9093", "keep_history": "30d"}
JOBS = ("materialize_offsets", "maintain_tables", "command")


def made(kind: str, declared: dict[str, Any]) -> Resource:
    """The resource as Databricks' own class has it; ValueError for a key that the class does not know."""
    resource: Resource = CLASSES[kind].from_dict(declared)
    return resource


def task(name: str) -> dict[str, Any]:
    (found,) = resources("production")["jobs"][name]["tasks"]
    declared: dict[str, Any] = found
    return declared


def compute(name: str) -> dict[str, Any]:
    (cluster,) = resources("production")["jobs"][name]["job_clusters"]
    declared: dict[str, Any] = cluster["new_cluster"]
    return declared


def arguments(name: str) -> list[str]:
    """What a job gives to its entry point."""
    return [resolved(each, "production", **VARIABLES) for each in task(name)["python_wheel_task"]["parameters"]]


@pytest.mark.parametrize("target", TARGETS)
def test_every_resource_is_one_of_databricks(target: str) -> None:
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
        ("dashboards", "kafka_offsets", ["dataset_schemas"]),
    ],
)
def test_a_misspelled_key_is_none(kind: str, name: str, path: list[Any]) -> None:
    declared = json.loads(json.dumps(resources("production")[kind][name]))
    at: Any = declared
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = "x"
    with pytest.raises(ValueError, match=f"Unexpected field '{path[-1]}'"):
        made(kind, declared)


def test_every_key_of_the_bundle_is_known() -> None:
    whole = bundle()
    assert whole.keys() == {"bundle", "include", "artifacts", "variables", "targets"}
    assert all(each.keys() <= {"description", "default"} for each in whole["variables"].values())
    known = {"mode", "default", "variables", "workspace", "run_as", "resources"}
    assert all(each.keys() <= known for each in whole["targets"].values())


def test_every_reference_leads_somewhere() -> None:
    known = {f"var.{name}" for name in bundle()["variables"]}
    known |= {"workspace.file_path", "bundle.name", "bundle.target"}
    for kind, named in resources("production").items():
        known |= {f"resources.{kind}.{name}.name" for name in named}
    used = {each for target in TARGETS for each in references(resources(target))} | set(references(bundle()))
    assert used <= known
    assert {f"var.{name}" for name in bundle()["variables"]} <= used


def test_the_wheel_has_what_the_tasks_name() -> None:
    points = PROJECT["entry-points"]["packages"]
    for name in JOBS:
        wheel = task(name)["python_wheel_task"]
        assert wheel["package_name"] == PROJECT["name"]
        assert wheel["entry_point"] not in PROJECT["scripts"]  # Databricks takes the first of this name
        module, _, attribute = points[wheel["entry_point"]].partition(":")
        assert callable(getattr(import_module(module), attribute))


def test_the_parameters_are_the_commands_own(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {}
    for name, command in {"materialize_offsets": materialize_offsets, "maintain_tables": maintain_tables}.items():
        given[name] = command.make_context(name, arguments(name), **command.context_settings).params
    which, *its_own = arguments("command")
    assert which == "verify"
    given["command"] = verify.make_context("verify", its_own).params
    run = given["materialize_offsets"]
    assert run["tables"] == "lake.kafka_offsets"
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


def test_all_run_on_dedicated_compute_with_what_the_wheel_needs_there() -> None:
    extra = set(PROJECT["optional-dependencies"]["databricks"])
    needed = (extra - {"offsetstream[cluster]"}) | set(PROJECT["optional-dependencies"]["cluster"])
    for name in JOBS:
        assert compute(name)["data_security_mode"] == "SINGLE_USER"
        wheel, *libraries = task(name)["libraries"]
        assert wheel == {"whl": "../dist/*.whl"}
        assert {each["pypi"]["package"] for each in libraries} == needed


def test_spark_and_delta_are_the_runtimes_own() -> None:
    installed = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["databricks"]]
    installed += PROJECT["optional-dependencies"]["cluster"]
    assert not [each for each in installed if re.match(r"pyspark|delta-spark|pandas|offsetstream\[(?!cluster)", each)]


def test_the_wheel_is_built_by_the_bundle() -> None:
    assert bundle()["artifacts"] == {"offsetstream": {"type": "whl", "path": ".", "build": "uv build --wheel"}}


def test_one_job_streams_and_what_production_keeps() -> None:
    found = resources("production")
    assert found["jobs"]["materialize_offsets"]["max_concurrent_runs"] == 1
    assert found["jobs"]["materialize_offsets"]["continuous"] == {"pause_status": "UNPAUSED"}
    for kind, name in (("schemas", "kafka_offsets"), ("volumes", "checkpoints")):
        assert found[kind][name]["lifecycle"] == {"prevent_destroy": True}
        assert "lifecycle" not in resources("development")[kind][name]
    assert {name: each["mode"] for name, each in bundle()["targets"].items()} == {name: name for name in TARGETS}


def test_the_dashboard_shows_columns_that_its_queries_have() -> None:
    (resource,) = resources("production")["dashboards"].values()
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
